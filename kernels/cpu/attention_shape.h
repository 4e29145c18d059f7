#pragma once
// What attention's forward and backward share: who sees which key, where a head lies, how queries are dealt out.

#include <algorithm>
#include <cstdint>

#include "keel/kernels/attention.h"
#include "keel/kernels/cpu/gemm.h"
#include "keel/kernels/cpu/sizes.h"

namespace keel::cpu {

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

// Keys [begin, end).
struct KeyRange {
  std::int64_t begin, end;
  std::int64_t count() const { return end - begin; }
  // The same keys counted from `first` on; [0, 0) where there are none.
  KeyRange from(std::int64_t first) const {
    return begin == end ? KeyRange{0, 0} : KeyRange{begin - first, end - first};
  }
};

// Queries [begin, end) of one head.
struct QueryBlock {
  std::int64_t head, begin, end;
  std::int64_t rows() const { return end - begin; }
};

// How the blocks of queries become tasks.
struct Dealing {
  std::int64_t pairs = 0;  // of a sample and a key/value head that are computed at the same time; 0: all
  bool by_query = false;   // one task has the blocks of the same queries of all heads of a group
};

struct AttentionShape {
  std::int64_t batch, heads, kv_heads, queries, keys, size;
  std::int64_t group;         // query heads that share a key/value head
  std::int64_t blocks;        // of queries, over all heads of a group
  std::int64_t head_blocks;   // of one head
  std::int64_t block_extent;  // queries of a block
  std::int64_t chunks;        // tasks among which the blocks of one key/value head are dealt
  bool by_query;
  std::int64_t q_offset;
  std::int64_t past, ahead;  // query i sees keys above i + q_offset - past and below i + q_offset + ahead; 0: all
  const std::int64_t *starts, *lengths;
  double scale;

  explicit AttentionShape(const AttentionArgs& args, const Dealing& dealing = {})
      : batch(args.q.dim(0)),
        heads(args.q.dim(1)),
        kv_heads(args.k.dim(1)),
        queries(args.q.dim(2)),
        keys(args.k.dim(2)),
        size(args.q.dim(3)),
        group(heads / kv_heads),
        by_query(dealing.by_query),
        q_offset(args.q_offset),
        past(std::min(args.window, q_offset + queries + keys)),
        ahead(args.causal ? 1 : past),
        starts(args.starts.defined() ? args.starts.data<std::int64_t>() : nullptr),
        lengths(args.lengths.defined() ? args.lengths.data<std::int64_t>() : nullptr),
        scale(args.scale) {
    head_blocks = (queries + kQueryBlock - 1) / kQueryBlock;
    block_extent = head_blocks == 0 ? 0 : (queries + head_blocks - 1) / head_blocks;
    blocks = group * head_blocks;
    const std::int64_t pairs = std::max<std::int64_t>(1, dealing.pairs != 0 ? dealing.pairs : batch * kv_heads);
    chunks = std::clamp<std::int64_t>(kAttentionTasks / pairs, 1,
                                      std::max<std::int64_t>(1, by_query ? head_blocks : blocks));
  }

  // Keys that query i of sequence b sees.
  KeyRange seen(std::int64_t b, std::int64_t i) const { return seen(b, i, i + 1); }
  // From the first key that one of the queries [begin, end) sees to the last.
  KeyRange seen(std::int64_t b, std::int64_t begin, std::int64_t end) const {
    const std::int64_t first = first_key(b, begin);
    return {first, std::max(first, last_key(b, end - 1))};
  }
  // The same for all queries: what is packed of sequence b.
  KeyRange packed(std::int64_t b) const { return seen(b, 0, queries); }
  // The same for a block, from a column on at which a product of packed keys may begin.
  template <class T>
  KeyRange columns(std::int64_t b, const QueryBlock& block) const {
    KeyRange range = seen(b, block.begin, block.end);
    const std::int64_t origin = packed(b).begin;
    if (range.count() == 0) return {origin, origin};
    range.begin -= (range.begin - origin) % packed_columns<T>();
    return range;
  }

  // Calls f(QueryBlock) for the blocks of one of the `chunks` tasks of a key/value head, in order.
  template <class F>
  void for_each_block(std::int64_t kv_head, std::int64_t chunk, F f) const {
    const auto call = [&](std::int64_t in_group, std::int64_t block) {
      const std::int64_t begin = block * block_extent;
      f(QueryBlock{kv_head * group + in_group, begin, std::min(queries, begin + block_extent)});
    };
    if (!by_query) {
      for (std::int64_t block = chunk; block < blocks; block += chunks) call(block / head_blocks, block % head_blocks);
      return;
    }
    for (std::int64_t block = chunk; block < head_blocks; block += chunks)
      for (std::int64_t in_group = 0; in_group < group; ++in_group) call(in_group, block);
  }

  std::int64_t tasks() const { return batch * kv_heads * chunks; }
  // Keys that a block of queries sees at most, with those before them that its products take along.
  std::int64_t width() const {
    return past == 0 ? keys : std::min(keys, block_extent + past + ahead + kLargestAlignment);
  }
  // Tasks that are worth a thread, where each takes `products` matrix products of scores by heads. An
  // exponential and what belongs to it costs about 64 multiply-adds, and a number of a key or value 16.
  std::int64_t grain(std::int64_t products) const {
    const std::int64_t work = group * queries * width() / chunks * (products * size + 64) + keys * size * 16;
    return std::max<std::int64_t>(1, kTaskProducts / std::max<std::int64_t>(1, work));
  }
  // Numbers from one row of scores to the next: whole pairs of vectors, and one more vector to keep the
  // rows off one cache set.
  std::int64_t score_stride() const { return (width() + 31) / 32 * 32 + 16; }

 private:
  static constexpr std::int64_t kLargestAlignment = packed_columns<float>();
  static_assert(packed_columns<double>() <= kLargestAlignment && packed_columns<bf16>() <= kLargestAlignment &&
                packed_columns<f16>() <= kLargestAlignment);

  static std::int64_t limited(const std::int64_t* limits, std::int64_t b, std::int64_t otherwise, std::int64_t keys) {
    return limits == nullptr ? otherwise : std::clamp<std::int64_t>(limits[b], 0, keys);
  }
  std::int64_t first_key(std::int64_t b, std::int64_t i) const {
    const std::int64_t start = limited(starts, b, 0, keys);
    return past == 0 ? start : std::max(start, std::min(keys, i + q_offset - past + 1));
  }
  // One past the last key that query i sees of sequence b.
  std::int64_t last_key(std::int64_t b, std::int64_t i) const {
    const std::int64_t limit = limited(lengths, b, keys, keys);
    return ahead == 0 ? limit : std::min(limit, i + q_offset + ahead);
  }
};

}  // namespace keel::cpu
