#pragma once
// The exponentials of a row relative to its maximum, which softmax and cross-entropy are made of.

#include "keel/kernels/cpu/rows.h"
#include "keel/runtime/math.h"

namespace keel::cpu {

// Room that exponentials() needs for a row of n elements: whole vectors, so that nothing is left
// for scalar tails.
template <class A>
std::int64_t padded(std::int64_t n) {
  return (n + kRowLanes<A> - 1) / kRowLanes<A> * kRowLanes<A>;
}

template <class A>
struct Exponentials {
  A shift;  // the row's maximum, or a little less
  A sum;    // of exp(x - shift); NaN when an x is NaN or +inf, 0 when all are -inf
};

// exps[i] = exp(x[i] - shift), with room for padded(n). The row is read once, block by block: when a
// block raises the maximum, what was computed before is rescaled (Milakov and Gimelshein 2018).
template <class T, class A = Accumulator<T>>
Exponentials<A> exponentials(const T* x, std::int64_t n, A* exps) {
  // So small that memory fetches the next block during the arithmetic of this one.
  constexpr std::int64_t kBlock = 256;
  // A maximum this little above the shift changes no digit of a quotient, and saves the rescaling.
  constexpr A kSlack = 8;
  constexpr A kNone = -std::numeric_limits<A>::infinity();
  A shift = kNone, sum = 0;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, n - begin), whole = padded<A>(count);
    A* const block = exps + begin;
    for (std::int64_t i = 0; i < count; ++i) block[i] = widen(x[begin + i]);
    std::fill(block + count, block + whole, kNone);
    const A max = row_maximum(block, whole);
    if (max - shift > kSlack) {
      if (begin > 0) {
        const A factor = math::exp(shift - max);
        for (std::int64_t i = 0; i < begin; ++i) exps[i] *= factor;
        sum *= factor;
      }
      shift = max;
    }
    const A subtracted = shift == kNone ? A{0} : shift;
    for (std::int64_t i = 0; i < whole; ++i) block[i] = math::exp(block[i] - subtracted);
    sum += row_sum(block, whole);
  }
  return {shift, sum};
}

}  // namespace keel::cpu
