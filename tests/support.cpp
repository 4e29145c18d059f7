#include "tests/support.h"

#include <random>

namespace keel::testing {

Context context(int threads, KernelChoice kernels) {
  ContextOptions options;
  options.threads = threads;
  options.kernels = kernels;
  return Context::create(options);
}

std::vector<double> uniform(std::int64_t count, std::uint64_t seed, double low, double high) {
  std::mt19937_64 engine(seed);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = low + (high - low) * (static_cast<double>(engine() >> 11) * 0x1p-53);
  return values;
}

Tensor tensor_of(const Context& context, const std::vector<double>& values, const Dims& shape, DType dtype) {
  return visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::vector<T> rounded;
    rounded.reserve(values.size());
    for (const double value : values) {
      if constexpr (std::is_arithmetic_v<T>) rounded.push_back(static_cast<T>(value));
      else rounded.push_back(T(static_cast<float>(value)));
    }
    return from_values(context, rounded, shape);
  });
}

Tensor uniform_tensor(const Context& context, const Dims& shape, std::uint64_t seed, DType dtype, double low,
                      double high) {
  return tensor_of(context, uniform(product(shape), seed, low, high), shape, dtype);
}

std::vector<double> doubles(const Tensor& tensor) {
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(tensor.numel()));
  visit_dtype(tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (const T value : tensor.to_vector<T>()) {
      if constexpr (std::is_arithmetic_v<T>) values.push_back(static_cast<double>(value));
      else values.push_back(static_cast<double>(static_cast<float>(value)));
    }
  });
  return values;
}

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
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
