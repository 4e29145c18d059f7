// The gradient of attention's bias, in fp32 arithmetic; attention_backward.cu has the formulas. dS is computed anew, a
// tile of queries and keys at a time, and a block adds up all that one tile of the bias was added to: batches, then
// heads, then queries, in this order.

#include "keel/kernels/cuda/attention_tiles.h"
#include "keel/kernels/cuda/backend.h"

namespace keel::cuda {
namespace {

struct BiasParameters {
  AttentionShape shape;
  HeadRows q, k, v, grad_out;
  const QueryStats* stats;
  AttentionOptions options;
  float* grad_bias;           // (batch, heads, queries, keys)
  int batch, heads, queries;  // of the bias
};

constexpr int kTilesHeld = 4;

template <int kTile, int kSize>
__global__ void __launch_bounds__(kTileThreads, 1) attention_grad_bias_kernel(BiasParameters p, int query_tiles) {
  using Own = Tiles<kTile, kSize>;
  constexpr int kKeys = 0, kValues = 1, kQueries = 2, kGrads = 3;
  const Own own;
  const AttentionShape& shape = p.shape;
  const KeptTile<kTile> kept(Own::bytes(kTilesHeld));
  const bool drops = p.options.dropout.samples != nullptr, by_query = p.queries > 1;
  const int key_tiles = (shape.keys + kTile - 1) / kTile, block = static_cast<int>(blockIdx.x);
  const int key = block % key_tiles * kTile, query_tile = block / key_tiles % (by_query ? query_tiles : 1);
  const int head_of_all = block / key_tiles / (by_query ? query_tiles : 1);
  const int bias_head = head_of_all % p.heads, bias_batch = head_of_all / p.heads;
  // What the tile was added to.
  const int first_b = p.batch > 1 ? bias_batch : 0, end_b = p.batch > 1 ? bias_batch + 1 : shape.batch;
  const int first_head = p.heads > 1 ? bias_head : 0, end_head = p.heads > 1 ? bias_head + 1 : shape.heads;
  const int first_query = query_tile * kTile, end_query = by_query ? first_query + 1 : shape.queries;

  float sums[Own::kEach][Own::kEach] = {};  // (queries, keys)
  for (int b = first_b; b < end_b; ++b) {
    const int limit = shape.key_limit(b), start = shape.key_start(b, limit);
    for (int head = first_head; head < end_head; ++head)
      for (int query = first_query; query < end_query; query += kTile) {
        const int last = (query + kTile < shape.queries ? query + kTile : shape.queries) - 1;
        if (key >= shape.visible(limit, last) || key + kTile <= shape.begin(start, query)) continue;
        const int kv_head = head / shape.group;
        __syncthreads();  // the tiles before were read
        own.load(kKeys, p.k, p.k.heads.at(b, kv_head), key, limit, start);
        own.load(kValues, p.v, p.v.heads.at(b, kv_head), key, limit, start);
        own.load(kQueries, p.q, p.q.heads.at(b, head), query, shape.queries);
        own.load(kGrads, p.grad_out, p.grad_out.heads.at(b, head), query, shape.queries);
        if (drops) kept.fill(p.options.dropout.of(b, head), query, key);
        __syncthreads();
        float scores[Own::kEach][Own::kEach], grads[Own::kEach][Own::kEach];
        own.multiply_rows(kQueries, kKeys, shape.size, scores);
        own.multiply_rows(kGrads, kValues, shape.size, grads);
        scale_and_add(p.options.bias, b, head, shape.scale, scores, [&](int e, int f) {
          return ScorePlace{query + own.y + kSide * e, key + own.x + kSide * f};
        });
#pragma unroll
        for (int e = 0; e < Own::kEach; ++e) {
          const int i = query + own.y + kSide * e, seen = shape.visible(limit, i), from = shape.begin(start, i);
          const QueryStats stats = p.stats[stats_of(shape, b, head) + i];
#pragma unroll
          for (int f = 0; f < Own::kEach; ++f) {
            if (drops) grads[e][f] *= kept(own.y + kSide * e, own.x + kSide * f) ? p.options.dropout.factor : 0;
            const ScorePair pair(scores[e][f], grads[e][f], 1, stats);
            const int column = key + own.x + kSide * f;
            if (column < seen && column >= from) sums[e][f] += pair.grad;
          }
        }
      }
  }

  float* const to = p.grad_bias + static_cast<std::int64_t>(head_of_all) * p.queries * shape.keys;
  if (by_query) {
#pragma unroll
    for (int e = 0; e < Own::kEach; ++e)
#pragma unroll
      for (int f = 0; f < Own::kEach; ++f) {
        const int i = first_query + own.y + kSide * e, j = key + own.x + kSide * f;
        if (i < shape.queries && j < shape.keys) to[static_cast<std::int64_t>(i) * shape.keys + j] = sums[e][f];
      }
    return;
  }
  own.store_scores(kTilesHeld, sums);
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x);
  if (column >= kTile || key + column >= shape.keys) return;
  float sum = 0;
  for (int row = 0; row < kTile; ++row) sum += own.score(kTilesHeld, row, column);
  to[key + column] = sum;
}

template <int kTile, int kSize>
void run(const BiasParameters& parameters, const Tensor& q) {
  const auto query_tiles = static_cast<int>(ceil_div(parameters.shape.queries, kTile));
  const std::int64_t tiles = ceil_div(parameters.shape.keys, kTile) * (parameters.queries > 1 ? query_tiles : 1);
  launch("attention backward, bias", attention_grad_bias_kernel<kTile, kSize>,
         {grid_of(tiles * parameters.batch * parameters.heads), kTileThreads,
          Tiles<kTile, kSize>::bytes(kTilesHeld) + KeptTile<kTile>::kBytes},
         stream_of(q), parameters, query_tiles);
}

}  // namespace

void attention_grad_bias(const AttentionBackwardArgs& args, const QueryStats* stats) {
  const AttentionArgs& forward = args.forward;
  const Tensor &q = forward.q, &bias = forward.bias;
  if (bias.numel() == 0) return;
  const BiasParameters parameters = {AttentionShape(forward),
                                     q,
                                     forward.k,
                                     forward.v,
                                     args.grad_out,
                                     stats,
                                     AttentionOptions(forward),
                                     args.grad_bias.data<float>(),
                                     static_cast<int>(bias.dim(0)),
                                     static_cast<int>(bias.dim(1)),
                                     static_cast<int>(bias.dim(2))};
  if (parameters.shape.size <= 64) run<64, 64>(parameters, q);
  else if (parameters.shape.size <= 128) run<32, 128>(parameters, q);
  else run<16, 256>(parameters, q);
}

}  // namespace keel::cuda
