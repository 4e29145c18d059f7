#pragma once
// Helpers that the tests share: dtypes, a context, reproducible numbers, error measures.

#include <cmath>
#include <cstdint>
#include <vector>

#include "keel/runtime/tensor.h"

namespace keel::testing {

inline constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f16, DType::f64};
inline constexpr DType kAllTypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64,
                                      DType::i32, DType::i64,  DType::u8};

Context context(int threads = 2, KernelChoice kernels = KernelChoice::automatic);

// Uniform numbers in [low, high), the same for the same seed.
std::vector<double> uniform(std::int64_t count, std::uint64_t seed, double low = -1, double high = 1);

// A dense tensor of the given dtype; the values are rounded to it.
Tensor tensor_of(const Context& context, const std::vector<double>& values, const Dims& shape,
                 DType dtype = DType::f32);
Tensor uniform_tensor(const Context& context, const Dims& shape, std::uint64_t seed, DType dtype = DType::f32,
                      double low = -1, double high = 1);

// Any dtype and layout, as doubles in row-major order.
std::vector<double> doubles(const Tensor& tensor);

// |a - b| / |b| by Euclidean norms; |a| when b is zero.
double relative_error(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace keel::testing
