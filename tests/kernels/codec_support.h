#pragma once
// What tests of codecs share: codecs, and numbers that are hard on them.

#include <cmath>
#include <vector>

#include "keel/kernels/codec.h"
#include "tests/support.h"

namespace keel::testing {

inline const Codec kInt8 = {};
inline Codec top(double fraction) { return {.kind = Codec::Kind::top_k, .fraction = fraction}; }

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

}  // namespace keel::testing
