#pragma once
// What tests of codecs share: codecs, numbers that are hard on them, and a law of orthonormal columns.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "keel/kernels/codec.h"
#include "tests/support.h"

namespace keel::testing {

inline const Codec kInt8Codec = {}, kInt4Codec = {.kind = Codec::Kind::int4};
inline Codec top(double fraction) { return {.kind = Codec::Kind::top_k, .fraction = fraction}; }
inline Codec top_2bit(double fraction) { return {.kind = Codec::Kind::top_k_2bit, .fraction = fraction}; }

// Numbers of very different sizes, some of them zero and some alike.
inline std::vector<double> mixed(std::int64_t count, std::uint64_t seed) {
  std::vector<double> values = uniform(count, seed);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] *= std::exp2(static_cast<double>(i * 7 % 40) - 20);
    if (i % 11 == 3) values[i] = 0;
    if (i % 13 == 5) values[i] = i % 2 == 0 ? 0.25 : -0.25;
    values[i] = static_cast<float>(values[i]);
  }
  return values;
}

// A column that depends on those before it becomes zero, and what is not finite stays visible.
inline void expect_dependent_columns_are_zero(const Context& context) {
  const Tensor x = tensor_of(context, {1, 2, 0, 3, 6, 1, -1, -2, 5}, {3, 3});  // the second is twice the first
  kernels::orthonormalise(x);
  const std::vector<double> q = doubles(x);
  for (const std::size_t r : {1, 4, 7}) EXPECT_EQ(q[r], 0);
  EXPECT_NEAR(q[2] * q[2] + q[5] * q[5] + q[8] * q[8], 1, 1e-6);
  const Tensor bad = tensor_of(context, {1, 2, std::numeric_limits<double>::infinity(), 3}, {2, 2});
  kernels::orthonormalise(bad);
  const std::vector<double> after = doubles(bad);
  EXPECT_FALSE(std::all_of(after.begin(), after.end(), [](double v) { return std::isfinite(v); }));
}

}  // namespace keel::testing
