#pragma once
// Second formulas of operations, for 16-bit numbers on a GPU where the exact functor takes longer than their bytes do.
//
// They use the GPU's own exponential and quotient, whose errors are far below the rounding of what is stored. fp32
// keeps the functors of keel/kernels/functors.h, and so the bits of the processor.

#include "keel/kernels/functors.h"
#include "keel/runtime/cuda/fast_math.h"

namespace keel::cuda {

template <class Op>
struct Quick;  // specialised for the operations that have a second formula
template <class Op>
concept HasQuick = requires {
  sizeof(Quick<Op>);
};

// x s(x) with s(x) = 1 / (1 + e^-2u).
template <>
struct Quick<GeluTanh> {
  static constexpr float kScale = static_cast<float>(GeluTanh::kScale);
  static constexpr float kCubic = static_cast<float>(GeluTanh::kScale * GeluTanh::kCubic);

  // 1 + e^-2u.
  __device__ static float denominator(float x, float square) {
    constexpr float kLog2E = math::detail::kLog2E;
    return 1 + fast_exp2(x * math::fma(-kLog2E * kCubic, square, -kLog2E * kScale));
  }
  __device__ float forward(float x) const { return fast_divide(x, denominator(x, x * x)); }
  __device__ float backward(float grad, float x) const {
    const float square = x * x, s = fast_divide(1, denominator(x, square));
    const float slope = math::fma(3 * kCubic, square, kScale);
    constexpr auto kSaturated = static_cast<float>(GeluTanh::kSaturated);
    return grad * s * (square < kSaturated ? math::fma(x * slope, 1 - s, 1.0f) : 1.0f);
  }
};

}  // namespace keel::cuda
