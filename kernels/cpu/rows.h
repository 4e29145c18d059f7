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
#include <utility>

#include "keel/kernels/cpu/workspace.h"
#include "keel/kernels/widen.h"
#include "keel/runtime/parallel.h"

namespace keel::cpu {

// Rows of this many columns that are worth a chunk of parallel_for.
inline std::int64_t row_grain(std::int64_t cols) {
  return std::max<std::int64_t>(1, kElementGrain / std::max<std::int64_t>(1, cols));
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

// What several passes over a row read it through: the row itself where widening an element costs no more
// than a load (fp32, fp64, bf16), else a copy in `scratch`. Loops widen() its elements.
template <class T>
using Readable = std::conditional_t<std::is_same_v<T, bf16>, bf16, Accumulator<T>>;
template <class T>
constexpr std::int64_t readable_count(std::int64_t n) {
  return std::is_same_v<T, Readable<T>> ? 0 : n;
}
template <class T>
const Readable<T>* readable_row(const T* row, std::int64_t n, Readable<T>* scratch) {
  if constexpr (std::is_same_v<T, bf16>) return row;
  else return widen_row(row, n, scratch);
}

// 32 bytes of float or double: one AVX2 register.
template <class A>
using Lanes [[gnu::vector_size(32)]] = A;
template <class A>
inline constexpr std::int64_t kRowLanes = 32 / sizeof(A);

// What a term of row_sum() reads rows through: several elements at once, or one. Sums in fp32
// may read bf16 rows, and sums in fp64 fp32 rows. add() adds to elements of a row.
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
  Lanes<float> operator()(const bf16* row) const requires std::is_same_v<A, float> {
    // Through arrays of known length, which compilers turn into one widening load.
    std::uint16_t narrow[kRowLanes<float>];
    std::memcpy(narrow, row + i, sizeof(narrow));
    std::uint32_t wide[kRowLanes<float>];
    for (std::int64_t lane = 0; lane < kRowLanes<float>; ++lane) wide[lane] = std::uint32_t{narrow[lane]} << 16;
    Lanes<float> lanes;
    std::memcpy(&lanes, wide, sizeof(lanes));
    return lanes;
  }
  void add(A* row, Lanes<A> values) const {
    const Lanes<A> sum = (*this)(row) + values;
    std::memcpy(row + i, &sum, sizeof(sum));
  }
};
template <class A>
struct ElementAt {
  std::int64_t i;
  template <class T>
  A operator()(const T* row) const {
    return static_cast<A>(row[i]);
  }
  void add(A* row, A value) const { row[i] += value; }
};

// The lanes of `a` and a single element as one number, halves first.
template <class A, class Combine>
A fold_lanes(Lanes<A> a, A rest, const Combine& combine) {
  A folded[kRowLanes<A>];
  std::memcpy(folded, &a, sizeof(a));
  for (std::int64_t half = kRowLanes<A> / 2; half > 0; half /= 2)
    for (std::int64_t lane = 0; lane < half; ++lane) folded[lane] = combine(folded[lane], folded[lane + half]);
  return combine(folded[0], rest);
}

// Folds term(at) for 0 <= i < n by `combine`, where at(row) is row[i]. Both are generic in their
// arguments, which are lanes or single elements. The order depends on n alone.
template <class A, class Term, class Combine>
A row_fold(std::int64_t n, A start, const Term& term, const Combine& combine) {
  constexpr std::int64_t lanes = kRowLanes<A>;
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
  return fold_lanes<A>(combine(combine(a, b), combine(c, d)), rest, combine);
}

template <class A, class Term>
A row_sum(std::int64_t n, const Term& term) {
  return row_fold(n, A{0}, term, [](auto x, auto y) { return x + y; });
}

template <class A>
A row_sum(const A* row, std::int64_t n) {
  return row_sum<A>(n, [&](auto at) { return at(row); });
}

// The sums of both parts of terms(at), a pair, in one pass.
template <class A, class Terms>
std::pair<A, A> row_sums(std::int64_t n, const Terms& terms) {
  constexpr std::int64_t lanes = kRowLanes<A>;
  decltype(terms(LanesAt<A>{0})) even{}, odd{};
  const auto add_to = [](auto& sums, const auto& values) {
    sums.first += values.first;
    sums.second += values.second;
  };
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    add_to(even, terms(LanesAt<A>{i}));
    add_to(odd, terms(LanesAt<A>{i + lanes}));
  }
  std::pair<A, A> rest{};
  for (; i < n; ++i) add_to(rest, terms(ElementAt<A>{i}));
  const auto add = [](A x, A y) { return x + y; };
  return {fold_lanes<A>(even.first + odd.first, rest.first, add),
          fold_lanes<A>(even.second + odd.second, rest.second, add)};
}

// NaN elements are passed over: what is computed with the maximum meets them again.
template <class A, class X>
A row_maximum(const X* row, std::int64_t n) {
  return row_fold<A>(
      n, -std::numeric_limits<A>::infinity(), [&](auto at) { return at(row); },
      [](auto x, auto y) { return y > x ? y : x; });
}

}  // namespace keel::cpu
