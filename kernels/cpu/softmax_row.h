#pragma once
// The exponentials of a row relative to its maximum, which softmax and cross-entropy are made of.

#include "keel/kernels/cpu/rows.h"
#include "keel/runtime/math.h"

namespace keel::cpu {

// exps[i] = exp(x[i] - shift), in whole vectors: the last one overlaps the one before it, since a vector
// costs less than a few scalars.
template <class X, class A>
void shifted_exponentials(const X* x, std::int64_t n, A shift, A* exps) {
  constexpr std::int64_t kStep = 64 / sizeof(A);
  const std::int64_t whole = n < kStep ? n : n / kStep * kStep;
  for (std::int64_t i = 0; i < whole; ++i) exps[i] = math::exp_flushed(widen(x[i]) - shift);
  if (whole == n) return;
  const X* const last_x = x + n - kStep;
  A* const last = exps + n - kStep;
  for (std::int64_t i = 0; i < kStep; ++i) last[i] = math::exp_flushed(widen(last_x[i]) - shift);
}

template <class A>
struct Exponentials {
  A shift;  // the row's maximum, or a little less
  A sum;    // of exp(x - shift); NaN when an x is NaN or +inf, 0 when all are -inf
};

// A row is handled in blocks of this many elements, so small that memory fetches the next one during
// the arithmetic of this one.
inline constexpr std::int64_t kExpBlock = 256;

enum class Keep { row, sum_alone };

// exps[i] = exp(x[i] - shift); with Keep::sum_alone the kExpBlock elements of `exps` are only scratch. The
// row is read once, block by block: when a block raises the maximum, what was computed before is rescaled
// (Milakov and Gimelshein 2018).
template <Keep keep, class T, class A = Accumulator<T>>
Exponentials<A> exponentials(const T* x, std::int64_t n, A* exps) {
  // A maximum this little above the shift changes no digit of a quotient, and saves the rescaling.
  constexpr A kSlack = 8;
  constexpr A kNone = -std::numeric_limits<A>::infinity();
  A shift = kNone, sum = 0;
  for (std::int64_t begin = 0; begin < n; begin += kExpBlock) {
    const std::int64_t count = std::min(kExpBlock, n - begin);
    A* const block = keep == Keep::row ? exps + begin : exps;
    Readable<T> scratch[std::is_same_v<T, Readable<T>> ? 1 : kExpBlock];
    const Readable<T>* const from = readable_row(x + begin, count, scratch);
    const A max = row_maximum<A>(from, count);
    if (max - shift > kSlack) {
      if (begin > 0) {
        const A factor = math::exp(shift - max);
        if (keep == Keep::row)
          for (std::int64_t i = 0; i < begin; ++i) exps[i] *= factor;
        sum *= factor;
      }
      shift = max;
    }
    shifted_exponentials(from, count, shift == kNone ? A{0} : shift, block);
    sum += row_sum(block, count);
  }
  return {shift, sum};
}

}  // namespace keel::cpu
