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

}  // namespace keel::cuda
