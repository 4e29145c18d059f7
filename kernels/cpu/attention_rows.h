#pragma once
// What attention's forward and backward share: who sees which key, where a head lies, row sums and exponentials.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "keel/kernels/attention.h"
#include "keel/kernels/cpu/gemm.h"
#include "keel/kernels/cpu/microkernel.h"
#include "keel/runtime/math.h"

namespace keel::cpu {

// Queries whose scores are held at once: workspace is this many rows of keys, whatever the length.
inline constexpr std::int64_t kQueryBlock = 48;
// Tasks wanted at least; where batch and heads give fewer, the query blocks of one head are dealt out.
inline constexpr std::int64_t kAttentionTasks = 16;

// A (batch, heads, time, size) tensor with a dense last dimension, as raw memory.
template <class T>
struct Heads {
  T* data;
  std::int64_t batch_stride, head_stride, time_stride;

  explicit Heads(const Tensor& x)
      : data(x.data<T>()), batch_stride(x.stride(0)), head_stride(x.stride(1)), time_stride(x.stride(2)) {}
  T* row(std::int64_t batch, std::int64_t head, std::int64_t time) const {
    return data + batch * batch_stride + head * head_stride + time * time_stride;
  }
  // One head from `time` on, as a matrix (time, size).
  MatrixView<T> matrix(std::int64_t batch, std::int64_t head, std::int64_t time = 0) const {
    return {row(batch, head, time), time_stride, 1};
  }
};

struct AttentionShape {
  std::int64_t batch, heads, kv_heads, queries, keys, size;
  std::int64_t group;         // query heads that share a key/value head
  std::int64_t blocks;        // of queries, over all heads of a group
  std::int64_t head_blocks;   // of one head
  std::int64_t block_extent;  // queries of a block
  std::int64_t chunks;        // tasks among which the blocks of one key/value head are dealt
  bool causal;
  std::int64_t q_offset;
  const std::int64_t* lengths;
  double scale;

  explicit AttentionShape(const AttentionArgs& args)
      : batch(args.q.dim(0)),
        heads(args.q.dim(1)),
        kv_heads(args.k.dim(1)),
        queries(args.q.dim(2)),
        keys(args.k.dim(2)),
        size(args.q.dim(3)),
        group(heads / kv_heads),
        causal(args.causal),
        q_offset(args.q_offset),
        lengths(args.lengths.defined() ? args.lengths.data<std::int64_t>() : nullptr),
        scale(args.scale) {
    head_blocks = (queries + kQueryBlock - 1) / kQueryBlock;
    block_extent = head_blocks == 0 ? 0 : (queries + head_blocks - 1) / head_blocks;
    blocks = group * head_blocks;
    const std::int64_t pairs = std::max<std::int64_t>(1, batch * kv_heads);
    chunks = std::clamp<std::int64_t>(kAttentionTasks / pairs, 1, std::max<std::int64_t>(1, blocks));
  }

  std::int64_t key_limit(std::int64_t b) const {
    return lengths == nullptr ? keys : std::clamp<std::int64_t>(lengths[b], 0, keys);
  }
  // Query i of sequence b sees the keys [0, visible(b, i)).
  std::int64_t visible(std::int64_t b, std::int64_t i) const {
    return causal ? std::min(key_limit(b), i + q_offset + 1) : key_limit(b);
  }
  std::int64_t tasks() const { return batch * kv_heads * chunks; }
  // Tasks that are worth a thread, where each takes `products` matrix products of scores by heads. An
  // exponential and what belongs to it costs about 64 multiply-adds, and a number of a key or value 16.
  std::int64_t grain(std::int64_t products) const {
    const std::int64_t work = group * queries * keys / chunks * (products * size + 64) + keys * size * 16;
    return std::max<std::int64_t>(1, kTaskProducts / std::max<std::int64_t>(1, work));
  }
  // Numbers from one row of scores to the next: whole pairs of vectors, and one more vector to keep the
  // rows off one cache set.
  std::int64_t score_stride() const { return (keys + 31) / 32 * 32 + 16; }
};

// Queries [begin, end) of one head.
struct QueryBlock {
  std::int64_t head, begin, end;
  std::int64_t rows() const { return end - begin; }
};
inline QueryBlock query_block(const AttentionShape& shape, std::int64_t kv_head, std::int64_t block) {
  const std::int64_t begin = block % shape.head_blocks * shape.block_extent;
  return {kv_head * shape.group + block / shape.head_blocks, begin,
          std::min(shape.queries, begin + shape.block_extent)};
}

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
