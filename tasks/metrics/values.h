#pragma once
// What metrics read of tensors: numbers, and guesses beside the targets that count.

#include <cstdint>
#include <limits>
#include <vector>

#include "keel/runtime/tensor.h"

namespace keel {

// The values of a floating tensor, from any device; another dtype is an Error.
std::vector<double> floating_numbers(const Tensor& tensor);
// Of i32 or i64, likewise.
std::vector<std::int64_t> whole_values(const Tensor& tensor);

struct CountedTarget {
  std::int64_t guess = 0, target = 0;
};
// Both: whole numbers of one shape, else an Error that names both. Targets of -100 are left out.
std::vector<CountedTarget> counted_targets(const Tensor& guesses, const Tensor& targets);

// What a metric over nothing is.
inline constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
// kUndefined over nothing.
double ratio_of(double sum, double count);

}  // namespace keel
