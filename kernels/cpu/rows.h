#pragma once
// Row arithmetic that the CPU kernels share: rows in fp32 or fp64, sums and maxima in a fixed order.
//
// A kernel widens a row, works on contiguous accumulators, and rounds once when it stores the result.
// Elementwise loops are left to the compiler; reductions are written with vector lanes, since
// adding floats in another order is not the compiler's to choose.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "keel/kernels/cpu/workspace.h"
#include "keel/runtime/dtype.h"
#include "keel/runtime/parallel.h"

namespace keel::cpu {

// Rows of this many columns that are worth a chunk of parallel_for.
inline std::int64_t row_grain(std::int64_t cols) {
  return std::max<std::int64_t>(1, kElementGrain / std::max<std::int64_t>(1, cols));
}

template <class T>
Accumulator<T> widen(T value) {
  return static_cast<Accumulator<T>>(value);
}

// Elements of scratch that widen_row() and staged_row() need for a row of n.
template <class T>
constexpr std::int64_t wide_count(std::int64_t n) {
  return std::is_same_v<T, Accumulator<T>> ? 0 : n;
}

// The row as accumulators: itself when T is one already, else a copy in `scratch`.
template <class T>
const Accumulator<T>* widen_row(const T* row, [[maybe_unused]] std::int64_t n,
                                [[maybe_unused]] Accumulator<T>* scratch) {
  if constexpr (std::is_same_v<T, Accumulator<T>>) {
    return row;
  } else {
    for (std::int64_t i = 0; i < n; ++i) scratch[i] = widen(row[i]);
    return scratch;
  }
}

// Where a result row is computed: in its destination when T is an accumulator, else in `scratch`.
template <class T>
Accumulator<T>* staged_row(T* row, [[maybe_unused]] Accumulator<T>* scratch) {
  if constexpr (std::is_same_v<T, Accumulator<T>>) return row;
  else return scratch;
}

// Rounds what staged_row() was filled with into its destination.
template <class T>
void store_row(const Accumulator<T>* staged, std::int64_t n, T* row) {
  if constexpr (!std::is_same_v<T, Accumulator<T>>)
    for (std::int64_t i = 0; i < n; ++i) row[i] = static_cast<T>(staged[i]);
}

// 32 bytes of float or double: one AVX2 register.
template <class A>
using Lanes [[gnu::vector_size(32)]] = A;
template <class A>
inline constexpr std::int64_t kLanes = 32 / sizeof(A);

// What a term of row_sum() reads rows through: several elements at once, or one. Sums in fp64
// may read fp32 rows.
template <class A>
struct LanesAt {
  std::int64_t i;
  Lanes<A> operator()(const A* row) const {
    Lanes<A> lanes;
    std::memcpy(&lanes, row + i, sizeof(lanes));
    return lanes;
  }
  Lanes<double> operator()(const float* row) const requires std::is_same_v<A, double> {
    using Narrow [[gnu::vector_size(16)]] = float;
    Narrow lanes;
    std::memcpy(&lanes, row + i, sizeof(lanes));
    return __builtin_convertvector(lanes, Lanes<double>);
  }
};
template <class A>
struct ElementAt {
  std::int64_t i;
  template <class T>
  A operator()(const T* row) const {
    return row[i];
  }
};

// Folds term(at) for 0 <= i < n by `combine`, where at(row) is row[i]. Both are generic in their
// arguments, which are lanes or single elements. The order depends on n alone.
template <class A, class Term, class Combine>
A row_fold(std::int64_t n, A start, const Term& term, const Combine& combine) {
  constexpr std::int64_t lanes = kLanes<A>;
  const Lanes<A> first = start - Lanes<A>{};
  Lanes<A> a = first, b = first, c = first, d = first;
  std::int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a = combine(a, term(LanesAt<A>{i}));
    b = combine(b, term(LanesAt<A>{i + lanes}));
    c = combine(c, term(LanesAt<A>{i + 2 * lanes}));
    d = combine(d, term(LanesAt<A>{i + 3 * lanes}));
  }
  for (; i + lanes <= n; i += lanes) a = combine(a, term(LanesAt<A>{i}));
  A rest = start;
  for (; i < n; ++i) rest = combine(rest, term(ElementAt<A>{i}));
  a = combine(combine(a, b), combine(c, d));
  A folded[lanes];
  std::memcpy(folded, &a, sizeof(a));
  for (std::int64_t half = lanes / 2; half > 0; half /= 2)
    for (std::int64_t lane = 0; lane < half; ++lane) folded[lane] = combine(folded[lane], folded[lane + half]);
  return combine(folded[0], rest);
}

template <class A, class Term>
A row_sum(std::int64_t n, const Term& term) {
  return row_fold(n, A{0}, term, [](auto x, auto y) { return x + y; });
}

template <class A>
A row_sum(const A* row, std::int64_t n) {
  return row_sum<A>(n, [&](auto at) { return at(row); });
}

// NaN elements are passed over: what is computed with the maximum meets them again.
template <class A>
A row_max(const A* row, std::int64_t n) {
  return row_fold(
      n, -std::numeric_limits<A>::infinity(), [&](auto at) { return at(row); },
      [](auto x, auto y) { return y > x ? y : x; });
}

}  // namespace keel::cpu
