#pragma once
// Arithmetic that a GPU has units for and that is not exactly rounded; the emulator computes the same to within the
// stated error, so the two do not agree bit by bit.

#include <cmath>

#include "keel/runtime/cuda/launch.h"

namespace keel::cuda {

// 2^x to 2^-22 of the result; 0 where that is below 2^-126, and NaN for NaN.
__device__ inline float fast_exp2(float x) {
#ifdef KEEL_EMULATED
  return x < -126.0f ? 0.0f : std::exp2(x);
#else
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#endif
}

// a / b to 2^-22 of the result; 0, or NaN for an infinite a, where |b| is above 2^126.
__device__ inline float fast_divide(float a, float b) {
#ifdef KEEL_EMULATED
  return std::fabs(b) > 0x1p126f ? a * 0.0f : a / b;
#else
  return __fdividef(a, b);
#endif
}

}  // namespace keel::cuda
