// Attention backward on tensor cores, for bf16 and f16; attention_backward.cu has the formulas.
//
// One kernel has the gradients of a tile of keys and values and goes over the queries; it computes the scores
// transposed, keys by queries. Another has those of a tile of queries and goes over the keys. So P and dS stay in the
// registers in which their products leave them and, rounded, are the left operands of the next products. That the
// scores are computed twice is seven products instead of five; in return nothing is added by two blocks, and nothing
// leaves the SM but the gradients.
//
// What a block goes over comes in tiles of 8 KiB, the next ones while this one is worked on, 32 rows in one round.
//
//   kernel, size    rows of a block   of a tile   shared memory                           fp32 registers of a lane
//   keys, 64                    128          64   2 x 16 KiB + 2 (8 KiB + 8 KiB) + 1 KiB  64 + 64 sums, 2 x 32 scores
//   keys, 128                    64          32   the same                                64 + 64 sums, 2 x 16 scores
//   queries, 64                 128          64   2 x 16 KiB + 2 (8 KiB + 8 KiB)          64 sums, 2 x 32 scores
//   queries, 128                128          32   2 x 32 KiB + 2 (8 KiB + 8 KiB)          128 sums, 2 x 32 scores
//
// Kernels with options, and those whose head size is between these, have half of the rows in a block where the
// registers would not do: the first and the last.
//
// Two blocks are on an SM at least; of the last kernel one, where an SM has less than 192 KiB of shared memory.

#include "keel/kernels/cuda/attention_fragment_options.h"

namespace keel::cuda {
namespace {

constexpr int kChunk = 32;  // rows of one round
constexpr int rows_of_tile(int size) { return 4096 / size; }

struct Parameters {
  AttentionShape shape;
  Heads q, k, v, grad_out, grad_q, grad_k, grad_v;
  const QueryStats* stats;
  AttentionOptions options;
};

constexpr int key_row_blocks(int size, bool options) { return options ? 1 : 128 / size; }
constexpr int keys_of_block(int size, bool options) { return kWarps * 16 * key_row_blocks(size, options); }

// kOptions: a bias and dropout may be given, and the head size may be less than kSize.
template <class T, int kSize, bool kOptions>
__global__ void __launch_bounds__(kBlockThreads, 2) attention_grad_keys_kernel(Parameters p, int tiles) {
  using Tile = FragmentTile<T, kSize>;
  constexpr int kRowBlocks = key_row_blocks(kSize, kOptions), kKeys = keys_of_block(kSize, kOptions),
                kQueries = rows_of_tile(kSize);
  constexpr int kStatsPieces = kQueries * static_cast<int>(sizeof(QueryStats)) / 16;
  const SharedAddress memory = shared_address(dynamic_span<uint4>().data());
  const auto stats_pairs = dynamic_span<float4>();  // two queries each
  const AttentionShape& shape = p.shape;
  const AttentionTile part(tiles, shape.kv_heads);
  const int first = part.tile * kKeys, limit = shape.key_limit(part.b), lane = lane_id();
  const int start = shape.key_start(part.b, limit);
  const int own_row = warp_id() * kRowBlocks * 16, own_first = first + own_row;
  const float factor = (kOptions ? 1 : shape.scale) * kLog2OfE;

  const Tile keys(memory, 0), own_keys = keys.from_row(own_row);
  const Tile values = keys.from_row(kKeys), own_values = values.from_row(own_row);
  Tile queries = values.from_row(kKeys), grad_out = queries.from_row(2 * kQueries);  // that are worked on
  int stats = queries.from_row(4 * kQueries).first;                                  // likewise
  const auto fetch = [&](int head, int query, int other, int other_stats) {
    typename Tile::template Source<!kOptions> q(HeadView<T>(p.q, part.b, head), query),
        grad(HeadView<T>(p.grad_out, part.b, head), query);
    queries.moved(other).template fetch<kQueries>(q, query, shape.queries);
    grad_out.moved(other).template fetch<kQueries>(grad, query, shape.queries);
    if (static_cast<int>(threadIdx.x) < kStatsPieces)
      copy_async(memory + (stats + other_stats + static_cast<int>(threadIdx.x) * 16),
                 p.stats + stats_of(shape, part.b, head) + query + threadIdx.x * 2);
    commit_copies();
  };

  // The queries before the first that sees a key of this block, and behind the last, are passed over, in each head.
  const int first_query = shape.first_query(first) / kQueries * kQueries, end_head = (part.head + 1) * shape.group;
  const int end_query = shape.end_query((first + kKeys < limit ? first + kKeys : limit) - 1);
  const bool any = first < limit && first + kKeys > start && first_query < end_query;
  int head = any ? part.head * shape.group : end_head, query = first_query;
  if (head < end_head) {
    typename Tile::template Source<!kOptions> k(HeadView<T>(p.k, part.b, part.head), first),
        v(HeadView<T>(p.v, part.b, part.head), first);
    keys.template fetch<kKeys>(k, first, limit, start);
    values.template fetch<kKeys>(v, first, limit, start);
    fetch(head, query, 0, 0);
  }
  Sums<kRowBlocks, kSize / 8> grad_k, grad_v;
  grad_k.clear();
  grad_v.clear();
  int other = kQueries * Tile::kPitch, other_stats = 16 * kStatsPieces;  // from these tiles to the others
  while (head < end_head) {
    const bool last = query + kQueries >= end_query;
    const int next_head = last ? head + 1 : head, next_query = last ? first_query : query + kQueries;
    wait_copies<0>();
    __syncthreads();  // these tiles are here, and the others were read
    if (next_head < end_head) fetch(next_head, next_query, other, other_stats);
#pragma unroll 1
    for (int chunk = 0; chunk < kQueries; chunk += kChunk) {
      if (own_first >= shape.visible(limit, query + chunk + kChunk - 1) ||
          own_first + 16 * kRowBlocks <= shape.begin(start, query + chunk))
        continue;                                   // no key of the warp is seen
      Sums<kRowBlocks, kChunk / 8> weights, grads;  // (keys, queries)
      multiply_rows(weights, own_keys, queries.from_row(chunk), 0);
      const bool hidden = own_first + 16 * kRowBlocks > shape.visible(limit, query + chunk) ||
                          own_first < shape.begin(start, query + chunk + kChunk - 1);
      if constexpr (kOptions)
        scale_and_add<T, true>(p.options.bias, part.b, head, shape.scale, weights, own_first, query + chunk);
#pragma unroll
      for (int n = 0; n < kChunk / 8; ++n) {
        const float4 pair = stats_pairs[stats / 16 + (chunk + 8 * n) / 2 + lane % 4];
#pragma unroll
        for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float& weight = weights.of[m][n][i];
            weight = fast_exp2(math::fma(weight, factor, (i % 2 == 0 ? pair.x : pair.z) * -kLog2OfE));
          }
      }
      if (hidden)
        weights.each([&](float& weight, int m, int n, int i) {
          const int column = query + chunk + 8 * n + lane % 4 * 2 + i % 2;
          const int key = own_first + 16 * m + lane / 4 + i / 2 * 8;
          if (key >= shape.visible(limit, column) || key < shape.begin(start, column)) weight = 0;
        });
      if constexpr (kOptions) {
        Sums<kRowBlocks, kChunk / 8> left = weights;  // by dropout
        multiply_rows(grads, own_values, grad_out.from_row(chunk), 0);
        if (p.options.dropout.samples != nullptr) {
          const KeptByKey<kRowBlocks> kept(p.options.dropout.of(part.b, head), own_first, query + chunk);
          grads.each([&](float& grad, int, int, int) { grad *= p.options.dropout.factor; });
#pragma unroll
          for (int n = 0; n < kChunk / 8; ++n)
            kept.each_dropped(n, [&](int m, int i) { left.of[m][n][i] = grads.of[m][n][i] = 0; });
        }
        add_product(grad_v, Weights<T, kRowBlocks, kChunk / 8>(left), grad_out.from_row(chunk), 0);
      } else {
        add_product(grad_v, Weights<T, kRowBlocks, kChunk / 8>(weights), grad_out.from_row(chunk), 0);
        multiply_rows(grads, own_values, grad_out.from_row(chunk), 0);
      }
#pragma unroll
      for (int n = 0; n < kChunk / 8; ++n) {
        const float4 pair = stats_pairs[stats / 16 + (chunk + 8 * n) / 2 + lane % 4];
#pragma unroll
        for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float& grad = grads.of[m][n][i];
            grad = weights.of[m][n][i] * (grad - (i % 2 == 0 ? pair.y : pair.w));
          }
      }
      add_product(grad_k, Weights<T, kRowBlocks, kChunk / 8>(grads), queries.from_row(chunk), 0);
    }
    queries = queries.moved(other);
    grad_out = grad_out.moved(other);
    stats += other_stats;
    other = -other;
    other_stats = -other_stats;
    head = next_head;
    query = next_query;
  }
  const int end = first + kKeys < shape.keys ? first + kKeys : shape.keys;
  grad_k.each([&](float& sum, int, int, int) { sum *= shape.scale; });
  if constexpr (kOptions) grad_v.each([&](float& sum, int, int, int) { sum *= p.options.dropout.factor; });
  store_rows(grad_k, own_keys, HeadView<T>(p.grad_k, part.b, part.head), own_first, end);
  store_rows(grad_v, own_values, HeadView<T>(p.grad_v, part.b, part.head), own_first, end);
}

constexpr int query_row_blocks(int size, bool options) { return options && size == 128 ? 1 : 2; }
constexpr int queries_of_block(int size, bool options) { return kWarps * 16 * query_row_blocks(size, options); }
static_assert(kStatsPadding % queries_of_block(64, false) == 0);

template <class T, int kSize, bool kOptions>
__global__ void __launch_bounds__(kBlockThreads, 2) attention_grad_queries_kernel(Parameters p, int tiles) {
  using Tile = FragmentTile<T, kSize>;
  constexpr int kRowBlocks = query_row_blocks(kSize, kOptions), kQueries = queries_of_block(kSize, kOptions),
                kKeys = rows_of_tile(kSize);
  const SharedAddress memory = shared_address(dynamic_span<uint4>().data());
  const AttentionShape& shape = p.shape;
  const AttentionTile part(tiles, shape.heads);
  const int first = (tiles - 1 - part.tile) * kQueries, kv_head = part.head / shape.group;
  const int end = first + kQueries < shape.queries ? first + kQueries : shape.queries;
  // For masks, keys and queries are counted from the first key that is no padding; `limit` is for these queries.
  const int start = shape.key_start(part.b, shape.key_limit(part.b)), lane = lane_id();
  const int limit = shape.visible(shape.key_limit(part.b) - start, end - 1 - start);
  const int first_key = shape.begin(0, first - start) / kChunk * kChunk;
  const int own_row = warp_id() * kRowBlocks * 16, own_first = first + own_row - start;
  const int own_last = own_first + kRowBlocks * 16 - 1;
  const float factor = (kOptions ? 1 : shape.scale) * kLog2OfE;

  const Tile queries(memory, 0), own_queries = queries.from_row(own_row);
  const Tile grad_out = queries.from_row(kQueries), own_grad_out = grad_out.from_row(own_row);
  Tile keys = grad_out.from_row(kQueries), values = keys.from_row(2 * kKeys);  // that are worked on
  typename Tile::template Source<!kOptions> q(HeadView<T>(p.q, part.b, part.head), first),
      grad(HeadView<T>(p.grad_out, part.b, part.head), first), k(HeadView<T>(p.k, part.b, kv_head), start + first_key),
      v(HeadView<T>(p.v, part.b, kv_head), start + first_key);
  queries.template fetch<kQueries>(q, first, end);
  grad_out.template fetch<kQueries>(grad, first, end);
  keys.template fetch<kKeys>(k, first_key, limit);
  values.template fetch<kKeys>(v, first_key, limit);
  commit_copies();

  float shift[kRowBlocks][2], delta[kRowBlocks][2];
#pragma unroll
  for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const QueryStats stats =
          p.stats[stats_of(shape, part.b, part.head) + first + own_row + 16 * m + lane / 4 + 8 * half];
      shift[m][half] = stats.lse * -kLog2OfE;
      delta[m][half] = stats.delta;
    }
  Sums<kRowBlocks, kSize / 8> grad_q;
  grad_q.clear();
  int other = kKeys * Tile::kPitch;  // from these tiles to the others
  for (int key = first_key; key < limit; key += kKeys) {
    wait_copies<0>();
    __syncthreads();  // these tiles are here, and the others were read
    if (key + kKeys < limit) {
      keys.moved(other).template fetch<kKeys>(k, key + kKeys, limit);
      values.moved(other).template fetch<kKeys>(v, key + kKeys, limit);
      commit_copies();
    }
#pragma unroll 1
    for (int chunk = 0; chunk < kKeys && key + chunk < shape.visible(limit, own_last); chunk += kChunk) {
      if (key + chunk + kChunk <= own_first + shape.behind) continue;
      Sums<kRowBlocks, kChunk / 8> weights, grads;  // (queries, keys)
      multiply_rows(weights, own_queries, keys.from_row(chunk), 0);
      if constexpr (kOptions)
        scale_and_add<T, false>(p.options.bias, part.b, part.head, shape.scale, weights, start + own_first,
                                start + key + chunk);
      multiply_rows(grads, own_grad_out, values.from_row(chunk), 0);
      if constexpr (kOptions)
        if (p.options.dropout.samples != nullptr) {
          const KeptByQuery<kRowBlocks> kept(p.options.dropout.of(part.b, part.head), start + own_first,
                                             start + key + chunk);
          grads.each([&](float& grad, int, int, int) { grad *= p.options.dropout.factor; });
#pragma unroll
          for (int n = 0; n < kChunk / 8; ++n) kept.each_dropped(n, [&](int m, int i) { grads.of[m][n][i] = 0; });
        }
      grads.each([&](float& grad, int m, int n, int i) {
        const float weight = fast_exp2(math::fma(weights.of[m][n][i], factor, shift[m][i / 2]));
        grad = weight * (grad - delta[m][i / 2]);
      });
      if (key + chunk + kChunk > shape.visible(limit, own_first) || key + chunk < own_last + shape.behind)
        grads.each([&](float& grad, int m, int n, int i) {
          const int query = own_first + 16 * m + lane / 4 + i / 2 * 8;
          const int column = key + chunk + 8 * n + lane % 4 * 2 + i % 2;
          if (column >= shape.visible(limit, query) || column < query + shape.behind) grad = 0;
        });
      add_product(grad_q, Weights<T, kRowBlocks, kChunk / 8>(grads), keys.from_row(chunk), 0);
    }
    keys = keys.moved(other);
    values = values.moved(other);
    other = -other;
  }
  wait_copies<0>();
  __syncthreads();  // also where no key is seen
  grad_q.each([&](float& sum, int, int, int) { sum *= shape.scale; });
  store_rows(grad_q, own_queries, HeadView<T>(p.grad_q, part.b, part.head), first + own_row, end);
}

template <class T, int kSize, bool kOptions>
void run(const Parameters& parameters, const Tensor& q) {
  const AttentionShape& shape = parameters.shape;
  const auto blocks_of = [&](int tiles, int heads) { return grid_of(std::int64_t{tiles} * heads * shape.batch); };
  constexpr int kTileRows = rows_of_tile(kSize), kRowBytes = kSize * static_cast<int>(sizeof(T));
  constexpr int kKeys = keys_of_block(kSize, kOptions), kQueries = queries_of_block(kSize, kOptions);
  const auto key_tiles = static_cast<int>(ceil_div(shape.keys, kKeys));
  if (key_tiles > 0)
    launch("attention backward, keys", attention_grad_keys_kernel<T, kSize, kOptions>,
           {blocks_of(key_tiles, shape.kv_heads), kBlockThreads,
            (2 * kKeys + 4 * kTileRows) * kRowBytes + 2 * kTileRows * sizeof(QueryStats)},
           stream_of(q), parameters, key_tiles);
  const auto query_tiles = static_cast<int>(ceil_div(shape.queries, kQueries));
  if (query_tiles > 0)
    launch("attention backward, queries", attention_grad_queries_kernel<T, kSize, kOptions>,
           {blocks_of(query_tiles, shape.heads), kBlockThreads,
            static_cast<std::size_t>((2 * kQueries + 4 * kTileRows) * kRowBytes)},
           stream_of(q), parameters, query_tiles);
}

template <class T, int kSize>
void run(const AttentionBackwardArgs& args, const QueryStats* stats) {
  const AttentionArgs& forward = args.forward;
  const Parameters parameters = {AttentionShape(forward),  Heads(forward.q),     Heads(forward.k),
                                 Heads(forward.v),         Heads(args.grad_out), Heads(args.grad_q),
                                 Heads(args.grad_k),       Heads(args.grad_v),   stats,
                                 AttentionOptions(forward)};
  if (parameters.options.any() || parameters.shape.size != kSize) run<T, kSize, true>(parameters, forward.q);
  else run<T, kSize, false>(parameters, forward.q);
}

}  // namespace

bool tensor_cores_take(const AttentionBackwardArgs& args) {
  for (const Tensor& x : {args.grad_out, args.grad_q, args.grad_k, args.grad_v})
    if (!Heads(x).aligned(x, 8)) return false;
  return tensor_cores_take(args.forward);
}

void attention_backward_on_tensor_cores(const AttentionBackwardArgs& args, const QueryStats* stats) {
  const bool narrow = args.forward.q.dim(3) <= 64;
  if (args.forward.q.dtype() == DType::bf16) return narrow ? run<bf16, 64>(args, stats) : run<bf16, 128>(args, stats);
  return narrow ? run<f16, 64>(args, stats) : run<f16, 128>(args, stats);
}

}  // namespace keel::cuda
