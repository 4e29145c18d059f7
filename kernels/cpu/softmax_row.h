#pragma once
// The exponentials of a row relative to its maximum, which softmax and cross-entropy are made of.

#include "keel/kernels/cpu/rows.h"
#include "keel/runtime/math.h"

namespace keel::cpu {

// Room that exponentials() needs for a row of n elements: whole vectors, so that no exp is left
// for a scalar tail.
inline std::int64_t padded(std::int64_t n) { return (n + 15) / 16 * 16; }

template <class A>
struct Exponentials {
  A max;
  A sum;  // of exp(x - max); NaN when an x is NaN or +inf, or all are -inf
};

// exps[i] = exp(x[i] - max). `exps` has padded(n) elements and may be x.
template <class A>
Exponentials<A> exponentials(const A* x, std::int64_t n, A* exps) {
  const A max = row_max(x, n);
  for (std::int64_t i = 0; i < n; ++i) exps[i] = x[i] - max;
  const std::int64_t end = padded(n);
  std::fill(exps + n, exps + end, -std::numeric_limits<A>::infinity());
  for (std::int64_t i = 0; i < end; ++i) exps[i] = math::exp(exps[i]);
  return {max, row_sum(exps, n)};
}

}  // namespace keel::cpu
