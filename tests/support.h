#pragma once
// Helpers that the tests share: dtypes, a context, reproducible numbers, error measures.

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "keel/runtime/tensor.h"

namespace keel::testing {

inline constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f16, DType::f64};
inline constexpr DType kAllTypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64,
                                      DType::i32, DType::i64,  DType::u8};

inline Context context(int threads = 2, KernelChoice kernels = KernelChoice::automatic) {
  ContextOptions options;
  options.threads = threads;
  options.kernels = kernels;
  return Context::create(options);
}

// Uniform numbers in [low, high), the same for the same seed.
inline std::vector<double> uniform(std::int64_t count, std::uint64_t seed, double low = -1, double high = 1) {
  std::mt19937_64 engine(seed);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = low + (high - low) * (static_cast<double>(engine() >> 11) * 0x1p-53);
  return values;
}

// A dense tensor of the given dtype; the values are rounded to it.
inline Tensor tensor_of(const Context& context, const std::vector<double>& values, const Dims& shape,
                        DType dtype = DType::f32) {
  return visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::vector<T> rounded;
    for (const double value : values) {
      if constexpr (std::is_arithmetic_v<T>) rounded.push_back(static_cast<T>(value));
      else rounded.push_back(T(static_cast<float>(value)));
    }
    return from_values(context, rounded, shape);
  });
}
inline Tensor uniform_tensor(const Context& context, const Dims& shape, std::uint64_t seed, DType dtype = DType::f32,
                             double low = -1, double high = 1) {
  return tensor_of(context, uniform(product(shape), seed, low, high), shape, dtype);
}

// Any dtype and layout, as doubles in row-major order.
inline std::vector<double> doubles(const Tensor& tensor) {
  std::vector<double> values;
  visit_dtype(tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (const T value : tensor.to_vector<T>()) {
      if constexpr (std::is_arithmetic_v<T>) values.push_back(static_cast<double>(value));
      else values.push_back(static_cast<double>(static_cast<float>(value)));
    }
  });
  return values;
}

// |a - b| / |b| by Euclidean norms; |a| when b is zero.
inline double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  if (std::isnan(difference)) return INFINITY;
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

}  // namespace keel::testing
