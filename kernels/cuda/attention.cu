// Attention forward: block by block with a running maximum and sum (FlashAttention-2, Dao 2023, algorithm 1), in fp32
// arithmetic, for any head size up to 256; and the choice between this and the tensor cores.

#include "keel/kernels/cuda/attention_tiles.h"
#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/running_softmax.h"

namespace keel::cuda {
namespace {

struct ForwardParameters {
  AttentionShape shape;
  HeadRows q, k, v, out;
  float* lse;
  AttentionOptions options;
};

// One block of kTile queries against all keys that they see, kTile at a time. kOptions: a bias and dropout may be
// given.
template <int kTile, int kSize, bool kOptions>
__global__ void __launch_bounds__(kTileThreads, 2) attention_kernel(ForwardParameters p, int tiles) {
  using Own = Tiles<kTile, kSize>;
  using Larger = RunningSoftmax::Larger;
  constexpr int kQuery = 0, kKeys = 1, kTilesHeld = 2;  // keys make room for values
  const Own own;
  const AttentionShape& shape = p.shape;
  const AttentionTile part(tiles, shape.heads);
  // Where only later queries see a key, these have most to do and begin first.
  const int first = (tiles - 1 - part.tile) * kTile, kv_head = part.head / shape.group;
  const int end = first + kTile < shape.queries ? first + kTile : shape.queries;
  const int limit = shape.key_limit(part.b), keys_seen = shape.visible(limit, end - 1);
  const int start = shape.key_start(part.b, limit), first_key = shape.begin(start, first) / kTile * kTile;
  const KeptTile<kTile> kept(Own::bytes(kTilesHeld));
  const bool drops = kOptions && p.options.dropout.samples != nullptr;

  own.load(kQuery, p.q, p.q.heads.at(part.b, part.head), first, end);
  float sums[Own::kEach][Own::kQuads][4] = {};
  RunningSoftmax rows[Own::kEach];
  for (int key = first_key; key < keys_seen; key += kTile) {
    __syncthreads();  // the values before were read
    own.load(kKeys, p.k, p.k.heads.at(part.b, kv_head), key, limit, start);
    if (drops) kept.fill(p.options.dropout.of(part.b, part.head), first, key);
    __syncthreads();
    float scores[Own::kEach][Own::kEach];
    own.multiply_rows(kQuery, kKeys, shape.size, scores);
    __syncthreads();
    own.load(kKeys, p.v, p.v.heads.at(part.b, kv_head), key, limit, start);
    if constexpr (kOptions)
      scale_and_add(p.options.bias, part.b, part.head, shape.scale, scores, [&](int e, int f) {
        return ScorePlace{first + own.y + kSide * e, key + own.x + kSide * f};
      });

#pragma unroll
    for (int e = 0; e < Own::kEach; ++e) {
      const int query = first + own.y + kSide * e, seen = shape.visible(limit, query), from = shape.begin(start, query);
      float block_largest = -INFINITY;
#pragma unroll
      for (int f = 0; f < Own::kEach; ++f) {
        float& score = scores[e][f];
        const int column = key + own.x + kSide * f;
        score = column < seen && column >= from ? (kOptions ? score : score * shape.scale) : -INFINITY;
        block_largest = Larger{}(block_largest, score);
      }
      const RunningSoftmax::Block block = rows[e].begin(reduce_row(block_largest, Larger{}));
      float block_total = 0;
#pragma unroll
      for (int f = 0; f < Own::kEach; ++f) block_total += scores[e][f] = block.weight(scores[e][f]);
      rows[e].end(block, reduce_row(block_total, Sum{}));
      if (drops) {
#pragma unroll
        for (int f = 0; f < Own::kEach; ++f)
          if (!kept(own.y + kSide * e, own.x + kSide * f)) scores[e][f] = 0;
      }
#pragma unroll
      for (int c = 0; c < Own::kQuads; ++c)
        for (int i = 0; i < 4; ++i) sums[e][c][i] *= block.rescale;
    }
    own.store_scores(kTilesHeld, scores);
    __syncthreads();
    own.add_product(kTilesHeld, kKeys, shape.size, sums);
  }

#pragma unroll
  for (int e = 0; e < Own::kEach; ++e) {
    const int query = first + own.y + kSide * e;
    const float inverse = rows[e].total == 0 ? 0 : (kOptions ? p.options.dropout.factor : 1) / rows[e].total;
#pragma unroll
    for (int c = 0; c < Own::kQuads; ++c)
      for (int i = 0; i < 4; ++i) sums[e][c][i] *= inverse;
    if (query < end && own.x == 0)
      p.lse[shape.row(part.b, part.head, query)] = rows[e].log_sum_exp();  // -inf where no key is seen
  }
  own.store(p.out, p.out.heads.at(part.b, part.head), first, end, 1, sums);
}

template <int kTile, int kSize>
void run(const ForwardParameters& parameters, const Tensor& q) {
  const AttentionShape& shape = parameters.shape;
  const auto tiles = static_cast<int>(ceil_div(shape.queries, kTile));
  const unsigned blocks = grid_of(std::int64_t{tiles} * shape.heads * shape.batch);
  const std::size_t bytes = Tiles<kTile, kSize>::bytes(2);
  if (parameters.options.any())
    launch("attention", attention_kernel<kTile, kSize, true>, {blocks, kTileThreads, bytes + KeptTile<kTile>::kBytes},
           stream_of(q), parameters, tiles);
  else
    launch("attention", attention_kernel<kTile, kSize, false>, {blocks, kTileThreads, bytes}, stream_of(q), parameters,
           tiles);
}

}  // namespace

void attention(const AttentionArgs& args) {
  check_attention("attention", args.q, args.k.dim(2));
  if (tensor_cores_take(args)) return attention_on_tensor_cores(args);
  const ForwardParameters parameters = {AttentionShape(args),  args.q, args.k, args.v, args.out, args.lse.data<float>(),
                                        AttentionOptions(args)};
  if (parameters.shape.size <= 64) run<64, 64>(parameters, args.q);
  else if (parameters.shape.size <= 128) run<64, 128>(parameters, args.q);
  else run<32, 256>(parameters, args.q);
}

void add_attention(KernelTable& table) {
  table.attention = attention;
  table.attention_backward = attention_backward;
}

}  // namespace keel::cuda
