#pragma once
// What attention's forward and backward share: who sees which key, where a head lies, row sums and exponentials.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "keel/kernels/attention.h"
#include "keel/kernels/cpu/gemm.h"
#include "keel/kernels/cpu/microkernel.h"
#include "keel/runtime/math.h"

namespace keel::cpu {

// Queries whose scores are held at once: workspace is this many rows of keys, whatever the length.
inline constexpr std::int64_t kQueryBlock = 64;
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
  // Numbers from one row of scores to the next; the extra vector keeps rows off one cache set.
  std::int64_t score_stride() const { return (keys + 15) / 16 * 16 + 16; }
};

// One block of queries of one head.
struct QueryBlock {
  std::int64_t head, begin, end;
  QueryBlock(const AttentionShape& shape, std::int64_t kv_head, std::int64_t block)
      : head(kv_head * shape.group + block / shape.head_blocks),
        begin(block % shape.head_blocks * shape.block_extent),
        end(std::min(shape.queries, begin + shape.block_extent)) {}
  std::int64_t rows() const { return end - begin; }
};

template <class S>
S horizontal_sum(Vector<S> lanes) {
  S sum = 0;
  for (int l = 0; l < kLanes<S>; ++l) sum += lanes[l];
  return sum;
}

// NaN is passed over here; it comes out of the exponentials.
template <class S>
S row_max(const S* x, std::int64_t n) {
  constexpr S lowest = -std::numeric_limits<S>::infinity();
  Vector<S> lanes = lowest - Vector<S>{};
  std::int64_t j = 0;
  for (; j + kLanes<S> <= n; j += kLanes<S>) {
    const Vector<S> value = load_vector<S>(x + j);
    lanes = value > lanes ? value : lanes;
  }
  S largest = lowest;
  for (int l = 0; l < kLanes<S>; ++l) largest = std::max(largest, lanes[l]);
  for (; j < n; ++j) largest = std::max(largest, x[j]);
  return largest;
}

// x[j] = exp(x[j] - shift); returns the sum, added in a fixed order.
template <class S>
S exponentials(S* x, std::int64_t n, S shift) {
  Vector<S> lanes{};
  std::int64_t j = 0;
  for (; j + kLanes<S> <= n; j += kLanes<S>) {
    for (int l = 0; l < kLanes<S>; ++l) x[j + l] = math::exp(x[j + l] - shift);
    lanes += load_vector<S>(x + j);
  }
  S sum = horizontal_sum<S>(lanes);
  for (; j < n; ++j) sum += x[j] = math::exp(x[j] - shift);
  return sum;
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
