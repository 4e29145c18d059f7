#pragma once
// What the tests of the row kernels share: tolerances of dtypes, bit comparison, error texts.

#include <cstring>
#include <string>

#include "keel/runtime/tensor.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel::testing {

// What one rounding to the dtype, or a short sum in its accumulator, may cost relative to a result.
inline double tolerance(DType dtype) {
  switch (dtype) {
    case DType::bf16: return 4e-3;
    case DType::f16: return 5e-4;
    case DType::f64: return 1e-13;
    default: return 1e-6;
  }
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && a.is_contiguous() && b.is_contiguous() &&
         (a.numel() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0);
}

// d(value)/d(x) at each element of an f64 tensor, by central differences of step `step`.
template <class F>
std::vector<double> central_differences(const Tensor& x, const F& value, double step = 1e-5) {
  double* const data = x.data<double>();
  std::vector<double> slopes;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double kept = data[i];
    data[i] = kept + step;
    const double above = value();
    data[i] = kept - step;
    const double below = value();
    data[i] = kept;
    slopes.push_back((above - below) / (2 * step));
  }
  return slopes;
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

}  // namespace keel::testing
