// Attention backward in fp32 arithmetic, for any head size up to 256. Probabilities are recomputed from the saved
// log-sum-exp, block by block (Dao 2023, algorithm 2):
//   P = exp(scale q k^T - lse), delta_i = sum_d grad_out_id out_id, dS = P (grad_out v^T - delta),
//   grad_v = P^T grad_out, grad_q = scale dS k, grad_k = scale dS^T q.
// One kernel has the gradients of a tile of keys and goes over the queries, another those of a tile of queries and goes
// over the keys. P is computed twice, and nothing is added by two blocks: the sums have a fixed order.

#include "keel/kernels/cuda/attention_tiles.h"
#include "keel/kernels/cuda/backend.h"

namespace keel::cuda {
namespace {

struct BackwardParameters {
  AttentionShape shape;
  HeadRows q, k, v, grad_out, grad_q, grad_k, grad_v;
  const QueryStats* stats;
  AttentionOptions options;
};

constexpr int kTilesHeld = 4;

// The gradients of kTile keys and values, from all queries of all heads that share them.
template <int kTile, int kSize, bool kOptions>
__global__ void __launch_bounds__(kTileThreads, kOptions ? 1 : 0)
    attention_grad_keys_kernel(BackwardParameters p, int tiles) {
  using Own = Tiles<kTile, kSize>;
  constexpr int kKeys = 0, kValues = 1, kQueries = 2, kGrads = 3;
  const Own own;
  const AttentionShape& shape = p.shape;
  const AttentionTile part(tiles, shape.kv_heads);
  const int first = part.tile * kTile, limit = shape.key_limit(part.b), start = shape.key_start(part.b, limit);
  const KeptTile<kTile> kept(Own::bytes(kTilesHeld));
  const bool drops = kOptions && p.options.dropout.samples != nullptr;
  own.load(kKeys, p.k, p.k.heads.at(part.b, part.head), first, limit, start);
  own.load(kValues, p.v, p.v.heads.at(part.b, part.head), first, limit, start);

  float grad_k[Own::kEach][Own::kQuads][4] = {}, grad_v[Own::kEach][Own::kQuads][4] = {};
  const bool any = first < limit && first + kTile > start;
  const int first_query = any ? shape.first_query(first) / kTile * kTile : shape.queries;
  const int end_query = shape.end_query((first + kTile < limit ? first + kTile : limit) - 1);
  for (int head = part.head * shape.group; head < (part.head + 1) * shape.group; ++head) {
    for (int query = first_query; query < end_query; query += kTile) {
      __syncthreads();  // the tiles before were read
      own.load(kQueries, p.q, p.q.heads.at(part.b, head), query, shape.queries);
      own.load(kGrads, p.grad_out, p.grad_out.heads.at(part.b, head), query, shape.queries);
      if (drops) kept.fill(p.options.dropout.of(part.b, head), query, first);
      __syncthreads();
      float weights[Own::kEach][Own::kEach], grads[Own::kEach][Own::kEach];  // (keys, queries)
      own.multiply_rows(kKeys, kQueries, shape.size, weights);
      own.multiply_rows(kValues, kGrads, shape.size, grads);
      if constexpr (kOptions)
        scale_and_add(p.options.bias, part.b, head, shape.scale, weights, [&](int e, int f) {
          return ScorePlace{query + own.x + kSide * f, first + own.y + kSide * e};
        });
#pragma unroll
      for (int f = 0; f < Own::kEach; ++f) {
        const int i = query + own.x + kSide * f;
        const int seen = shape.visible(limit, i), from = shape.begin(start, i);
        const QueryStats stats = p.stats[stats_of(shape, part.b, head) + i];
#pragma unroll
        for (int e = 0; e < Own::kEach; ++e) {
          float share = 1;  // of the weight that is left by dropout
          if constexpr (kOptions)
            if (drops) share = kept(own.x + kSide * f, own.y + kSide * e) ? p.options.dropout.factor : 0;
          const ScorePair pair(weights[e][f], kOptions ? grads[e][f] * share : grads[e][f], kOptions ? 1 : shape.scale,
                               stats);
          const int row = first + own.y + kSide * e;
          const bool visible = row < seen && row >= from;
          weights[e][f] = visible ? (kOptions ? pair.weight * share : pair.weight) : 0;
          grads[e][f] = visible ? pair.grad : 0;
        }
      }
      own.store_scores(kTilesHeld, weights);
      own.add_product(kTilesHeld, kGrads, shape.size, grad_v);
      own.store_scores(kTilesHeld, grads);
      own.add_product(kTilesHeld, kQueries, shape.size, grad_k);
    }
  }
  const int end = first + kTile < shape.keys ? first + kTile : shape.keys;
  own.store(p.grad_k, p.grad_k.heads.at(part.b, part.head), first, end, shape.scale, grad_k);
  own.store(p.grad_v, p.grad_v.heads.at(part.b, part.head), first, end, 1, grad_v);
}

// The gradients of kTile queries.
template <int kTile, int kSize, bool kOptions>
__global__ void __launch_bounds__(kTileThreads, kOptions ? 1 : 0)
    attention_grad_queries_kernel(BackwardParameters p, int tiles) {
  using Own = Tiles<kTile, kSize>;
  constexpr int kKeys = 0, kValues = 1, kQueries = 2, kGrads = 3;
  const Own own;
  const AttentionShape& shape = p.shape;
  const AttentionTile part(tiles, shape.heads);
  const int first = (tiles - 1 - part.tile) * kTile, kv_head = part.head / shape.group;
  const int end = first + kTile < shape.queries ? first + kTile : shape.queries;
  const int limit = shape.key_limit(part.b), keys_seen = shape.visible(limit, end - 1);
  const int start = shape.key_start(part.b, limit), first_key = shape.begin(start, first) / kTile * kTile;
  const KeptTile<kTile> kept(Own::bytes(kTilesHeld));
  const bool drops = kOptions && p.options.dropout.samples != nullptr;
  own.load(kQueries, p.q, p.q.heads.at(part.b, part.head), first, end);
  own.load(kGrads, p.grad_out, p.grad_out.heads.at(part.b, part.head), first, end);

  QueryStats stats[Own::kEach];
  float grad_q[Own::kEach][Own::kQuads][4] = {};
#pragma unroll
  for (int e = 0; e < Own::kEach; ++e)
    stats[e] = p.stats[stats_of(shape, part.b, part.head) + first + own.y + kSide * e];
  for (int key = first_key; key < keys_seen; key += kTile) {
    __syncthreads();  // the tiles before were read
    own.load(kKeys, p.k, p.k.heads.at(part.b, kv_head), key, limit, start);
    own.load(kValues, p.v, p.v.heads.at(part.b, kv_head), key, limit, start);
    if (drops) kept.fill(p.options.dropout.of(part.b, part.head), first, key);
    __syncthreads();
    float scores[Own::kEach][Own::kEach], grads[Own::kEach][Own::kEach];  // (queries, keys)
    own.multiply_rows(kQueries, kKeys, shape.size, scores);
    own.multiply_rows(kGrads, kValues, shape.size, grads);
    if constexpr (kOptions)
      scale_and_add(p.options.bias, part.b, part.head, shape.scale, scores, [&](int e, int f) {
        return ScorePlace{first + own.y + kSide * e, key + own.x + kSide * f};
      });
#pragma unroll
    for (int e = 0; e < Own::kEach; ++e) {
      const int query = first + own.y + kSide * e, seen = shape.visible(limit, query), from = shape.begin(start, query);
#pragma unroll
      for (int f = 0; f < Own::kEach; ++f) {
        if constexpr (kOptions)
          if (drops) grads[e][f] *= kept(own.y + kSide * e, own.x + kSide * f) ? p.options.dropout.factor : 0;
        const ScorePair pair(scores[e][f], grads[e][f], kOptions ? 1 : shape.scale, stats[e]);
        const int column = key + own.x + kSide * f;
        grads[e][f] = column < seen && column >= from ? pair.grad : 0;
      }
    }
    own.store_scores(kTilesHeld, grads);
    own.add_product(kTilesHeld, kKeys, shape.size, grad_q);
  }
  own.store(p.grad_q, p.grad_q.heads.at(part.b, part.head), first, end, shape.scale, grad_q);
}

// Sixteen threads for each row of (batch, heads, padded queries).
__global__ void __launch_bounds__(kTileThreads)
    attention_stats_kernel(AttentionShape shape, HeadRows out, HeadRows grad_out, const float* lse, QueryStats* stats) {
  const int padded = padded_queries(shape), x = static_cast<int>(threadIdx.x) % kSide;
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (kTileThreads / kSide) + static_cast<int>(threadIdx.x) / kSide;
  const std::int64_t head_of_all = row / padded;
  const int query = static_cast<int>(row - head_of_all * padded);
  const int b = static_cast<int>(head_of_all / shape.heads), head = static_cast<int>(head_of_all % shape.heads);
  float sum = 0;
  for (int column = 4 * x; query < shape.queries && column < shape.size; column += 4 * kSide) {
    const float4 left = out.load(out.heads.at(b, head) + query * out.heads.time_stride, column);
    const float4 right = grad_out.load(grad_out.heads.at(b, head) + query * grad_out.heads.time_stride, column);
    sum = math::fma(left.x, right.x, sum);
    sum = math::fma(left.y, right.y, sum);
    sum = math::fma(left.z, right.z, sum);
    sum = math::fma(left.w, right.w, sum);
  }
  sum = reduce_row(sum, Sum{});
  if (x != 0) return;
  const float own = query < shape.queries ? lse[shape.row(b, head, query)] : -INFINITY;
  stats[row] = own == -INFINITY ? QueryStats{INFINITY, 0} : QueryStats{own, sum};  // so that no weight is left
}

template <int kTile, int kSize, bool kOptions>
void run(const BackwardParameters& parameters, const Tensor& q) {
  const AttentionShape& shape = parameters.shape;
  const std::size_t bytes = Tiles<kTile, kSize>::bytes(kTilesHeld) + (kOptions ? KeptTile<kTile>::kBytes : 0);
  const auto blocks_of = [&](int tiles, int heads) { return grid_of(std::int64_t{tiles} * heads * shape.batch); };
  const auto key_tiles = static_cast<int>(ceil_div(shape.keys, kTile));
  if (key_tiles > 0)
    launch("attention backward, keys", attention_grad_keys_kernel<kTile, kSize, kOptions>,
           {blocks_of(key_tiles, shape.kv_heads), kTileThreads, bytes}, stream_of(q), parameters, key_tiles);
  const auto query_tiles = static_cast<int>(ceil_div(shape.queries, kTile));
  if (query_tiles > 0)
    launch("attention backward, queries", attention_grad_queries_kernel<kTile, kSize, kOptions>,
           {blocks_of(query_tiles, shape.heads), kTileThreads, bytes}, stream_of(q), parameters, query_tiles);
}

template <int kTile, int kSize>
void run(const BackwardParameters& parameters, const Tensor& q) {
  if (parameters.options.any()) run<kTile, kSize, true>(parameters, q);
  else run<kTile, kSize, false>(parameters, q);
}

}  // namespace

void attention_backward(const AttentionBackwardArgs& args) {
  const Tensor& q = args.forward.q;
  check_attention("attention backward", q, args.forward.k.dim(2));
  const AttentionShape shape(args.forward);
  if (shape.batch == 0 || shape.size == 0) return;
  const std::int64_t rows = std::int64_t{shape.batch} * shape.heads * padded_queries(shape);
  const Tensor workspace = empty(q.context(), {rows, 2}, DType::f32, Purpose::workspace);
  auto* stats = reinterpret_cast<QueryStats*>(workspace.raw());
  if (rows > 0)
    launch("attention backward, statistics", attention_stats_kernel,
           {grid_of(rows / (kTileThreads / kSide)), kTileThreads}, stream_of(q), shape, HeadRows(args.forward.out),
           HeadRows(args.grad_out), args.forward.lse.data<float>(), stats);
  if (args.needs_grad_bias) attention_grad_bias(args, stats);
  if (tensor_cores_take(args)) return attention_backward_on_tensor_cores(args, stats);
  const BackwardParameters parameters = {
      shape,       q,           args.forward.k, args.forward.v, args.grad_out,
      args.grad_q, args.grad_k, args.grad_v,    stats,          AttentionOptions(args.forward)};
  if (shape.size <= 64) run<64, 64>(parameters, q);
  else if (shape.size <= 128) run<32, 128>(parameters, q);
  else run<16, 256>(parameters, q);
}

}  // namespace keel::cuda
