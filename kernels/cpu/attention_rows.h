#pragma once
// Rows of attention's scores: what is hidden in them, their largest number, exponentials and sums.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "keel/kernels/cpu/gemm.h"
#include "keel/kernels/cpu/microkernel.h"
#include "keel/runtime/math.h"

namespace keel::cpu {

// Joins the lanes by halves.
template <class S, class Join>
S join_lanes(Vector<S> lanes, Join join) {
  S values[kLanes<S>];
  store_vector<S>(values, lanes);
#pragma GCC unroll 4
  for (int half = kLanes<S> / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) values[l] = join(values[l], values[l + half]);
  }
  return values[0];
}
template <class S>
S horizontal_sum(Vector<S> lanes) {
  return join_lanes<S>(lanes, [](S a, S b) { return a + b; });
}

// Probabilities as the next product reads them: bf16 where it multiplies pairs of bf16, else sums.
template <class T>
using Weight = std::conditional_t<Product<T>::kDepth == 2, bf16, Accumulator<T>>;

// Rows of scores are handled in steps of one vector of weights; their capacity allows it.
template <class W>
inline constexpr std::int64_t kRowStep = kLanes<W>;
template <class W>
constexpr std::int64_t padded(std::int64_t n) {
  return (n + kRowStep<W> - 1) / kRowStep<W> * kRowStep<W>;
}

// The numbers of x from the n-th up to padded<W>(n) become `rest`. Whole vectors are stored: one that is
// read back next would wait for several narrow stores.
template <class W, class S>
void finish_row(S* x, std::int64_t n, S rest) {
  using Index = std::conditional_t<sizeof(S) == 4, std::int32_t, std::int64_t>;
  static constexpr auto kNumbers = [] {
    std::array<Index, kLanes<S>> numbers{};
    for (int l = 0; l < kLanes<S>; ++l) numbers[static_cast<std::size_t>(l)] = l;
    return numbers;
  }();
  const Vector<Index> numbers = load_vector<Index>(kNumbers.data());
  for (std::int64_t j = n / kLanes<S> * kLanes<S>; j < padded<W>(n); j += kLanes<S>) {
    const Vector<Index> kept = numbers < static_cast<Index>(n - j);
    store_vector<S>(x + j, kept ? load_vector<S>(x + j) : rest - Vector<S>{});
  }
}

// The first n numbers of x become `rest`.
template <class S>
void begin_row(S* x, std::int64_t n, S rest) {
  for (std::int64_t j = 0; j < n; ++j) x[j] = rest;
}

// Rounds kRowStep<W> sums to weights.
template <class S, class W>
void store_weights(const Vector<S>* sums, W* to) {
  if constexpr (std::is_same_v<S, W>) store_vector<S>(to, sums[0]);
  else store_rounded(sums[0], sums[1], to);
}
// Weights of the columns [from, to) become zero, in whole steps.
template <class W>
void clear_weights(W* x, std::int64_t from, std::int64_t to) {
  for (std::int64_t j = from; j < to; j += kRowStep<W>) store_vector<std::uint8_t>(x + j, Vector<std::uint8_t>{});
}
// Columns of weights that a product must read so that it takes whole units; the last may be a zero weight.
template <class T>
constexpr std::int64_t whole_units(std::int64_t columns) {
  return (columns + Product<T>::kDepth - 1) / Product<T>::kDepth * Product<T>::kDepth;
}

// The largest of n numbers, n a multiple of a vector's lanes. NaN is ignored here; it comes out of the exponentials.
template <class S>
S row_max(const S* x, std::int64_t n) {
  Vector<S> lanes = load_vector<S>(x);
  for (std::int64_t j = kLanes<S>; j < n; j += kLanes<S>) {
    const Vector<S> value = load_vector<S>(x + j);
    lanes = value > lanes ? value : lanes;
  }
  return join_lanes<S>(lanes, [](S a, S b) { return a > b ? a : b; });
}

// weights[j] = exp(x[j] - shift) over whole steps; returns the sum, added in a fixed order.
// `weights` may be x itself.
template <class S, class W>
S exponentials(S* x, std::int64_t n, S shift, W* weights) {
  constexpr int kVectors = static_cast<int>(kRowStep<W>) / kLanes<S>;
  Vector<S> total{};
  for (std::int64_t j = 0; j < n; j += kRowStep<W>) {
    for (int l = 0; l < kRowStep<W>; ++l) x[j + l] = math::exp(x[j + l] - shift);
    Vector<S> values[kVectors];
    for (int v = 0; v < kVectors; ++v) total += values[v] = load_vector<S>(x + j + v * kLanes<S>);
    store_weights<S>(values, weights + j);
  }
  return horizontal_sum<S>(total);
}

// Sum of x[j] y[j] with x widened to S, added in a fixed order.
template <class S, class X, class Y>
S dot(const X* x, const Y* y, std::int64_t n) {
  Vector<S> lanes{};
  std::int64_t j = 0;
  for (; j + kLanes<S> <= n; j += kLanes<S>) {
    S product[kLanes<S>];
    for (int l = 0; l < kLanes<S>; ++l) product[l] = static_cast<S>(x[j + l]) * static_cast<S>(y[j + l]);
    lanes += load_vector<S>(product);
  }
  S sum = horizontal_sum<S>(lanes);
  for (; j < n; ++j) sum += static_cast<S>(x[j]) * static_cast<S>(y[j]);
  return sum;
}

}  // namespace keel::cpu
