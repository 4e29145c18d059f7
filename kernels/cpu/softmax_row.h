#pragma once
// The exponentials of a row relative to its maximum, which softmax and cross-entropy are made of.

#include "keel/kernels/cpu/rows.h"
#include "keel/runtime/math.h"

namespace keel::cpu {

// Room that exponentials() needs for a row of n elements: whole vectors, so that no exp is left
// for a scalar tail.
template <class A>
std::int64_t padded(std::int64_t n) {
  return (n + kLanes<A> - 1) / kLanes<A> * kLanes<A>;
}

// exps[i] = exp(x[i] - shift) for i < n; writes up to padded(n). `exps` may be x.
template <class A>
void shifted_exp(const A* x, std::int64_t n, A shift, A* exps) {
  const std::int64_t whole = n / kLanes<A> * kLanes<A>;
  for (std::int64_t i = 0; i < whole; ++i) exps[i] = math::exp(x[i] - shift);
  if (whole == n) return;
  const std::int64_t end = padded<A>(n);
  for (std::int64_t i = whole; i < n; ++i) exps[i] = x[i] - shift;
  std::fill(exps + n, exps + end, A{0});
  for (std::int64_t i = whole; i < end; ++i) exps[i] = math::exp(exps[i]);
}

template <class A>
struct Exponentials {
  A max;
  A sum;  // of exp(x - max); NaN when an x is NaN or +inf, 0 when all are -inf
};

// exps[i] = exp(x[i] - max), with room for padded(n). The row is read once, block by block: when a
// block raises the maximum, what was computed before is rescaled (Milakov and Gimelshein 2018).
template <class T, class A = Accumulator<T>>
Exponentials<A> exponentials(const T* x, std::int64_t n, A* exps) {
  constexpr std::int64_t kBlock = 2048;  // stays in the first cache between its maximum and its exponentials
  constexpr A kNone = -std::numeric_limits<A>::infinity();
  A max = kNone, sum = 0;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, n - begin);
    const A* const block = widen_row(x + begin, count, exps + begin);
    const A block_max = row_max(block, count);
    if (block_max > max) {
      if (begin > 0) {
        const A factor = math::exp(max - block_max);
        for (std::int64_t i = 0; i < begin; ++i) exps[i] *= factor;
        sum *= factor;
      }
      max = block_max;
    }
    shifted_exp(block, count, max == kNone ? A{0} : max, exps + begin);
    sum += row_sum(exps + begin, count);
  }
  return {max, sum};
}

}  // namespace keel::cpu
