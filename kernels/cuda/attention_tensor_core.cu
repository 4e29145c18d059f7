// Attention forward on tensor cores: FlashAttention-2 (Dao 2023, algorithm 1) for bf16 and f16.
//
// A block has 128 queries of one head, a warp 32 of them, and goes over the keys, 32 at a time. Scores stay in the
// registers in which the product leaves them: rounded, they are the left operand of the product with the values. Keys
// and values come in tiles of 8 KiB each, the next ones while this one is worked on.
//
//   head size   keys of a tile   shared memory                               fp32 registers of sums and scores
//          64               64   16 KiB queries + 2 (8 KiB + 8 KiB) tiles    64 + 32
//         128               32   32 KiB queries + 2 (8 KiB + 8 KiB) tiles    128 + 32
//
// So an SM of compute capability 8.0 or 9.0 holds three blocks of head size 64, and two of 128. Kernels with options,
// and those whose head size is between these, have 64 queries in a block of size 128, and two blocks on an SM.

#include "keel/kernels/cuda/attention_fragment_options.h"

namespace keel::cuda {
namespace {

constexpr int row_blocks(int size, bool options) { return options && size == 128 ? 1 : 2; }  // of 16 queries, of a warp
constexpr int queries_of_block(int size, bool options) { return kWarps * row_blocks(size, options) * 16; }
constexpr int kChunk = 32;  // keys of one round
constexpr int keys_of_tile(int size) { return 4096 / size; }

struct Parameters {
  AttentionShape shape;
  Heads q, k, v, out;
  float* lse;
  AttentionOptions options;
};

// What a lane knows of its rows, 16 m + lane / 4 + 8 half of the warp's: the largest score so far, and its part of the
// sum of exponentials.
template <int kRowBlocks>
struct Rows {
  float largest[kRowBlocks][2], total[kRowBlocks][2];
};

// Scores become exponentials, to the base 2 of scores times `factor`, relative to the largest score so far; the sums
// of what came before are brought to the same measure, which after the first rounds is mostly the one they have.
template <int kRowBlocks, int kColumnBlocks>
__device__ void exponentials(Sums<kRowBlocks, kChunk / 8>& scores, Rows<kRowBlocks>& rows,
                             Sums<kRowBlocks, kColumnBlocks>& sums, float factor) {
  float largest[kRowBlocks][2];
  bool grew = false;
#pragma unroll
  for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& value = largest[m][half];
      value = rows.largest[m][half];
#pragma unroll
      for (int n = 0; n < kChunk / 8; ++n)
        value = fmaxf(value, fmaxf(scores.of[m][n][2 * half], scores.of[m][n][2 * half + 1]));
#pragma unroll
      for (int distance = 1; distance < 4; distance *= 2)
        value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
      grew = grew || value > rows.largest[m][half];
    }
  if (__any_sync(kAllLanes, grew)) {
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float shift = largest[m][half] == -INFINITY ? 0 : largest[m][half] * factor;  // nothing was seen yet
        const float rescale = fast_exp2(math::fma(rows.largest[m][half], factor, -shift));
        rows.largest[m][half] = largest[m][half];
        rows.total[m][half] *= rescale;
#pragma unroll
        for (int n = 0; n < kColumnBlocks; ++n)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) sums.of[m][n][i] *= rescale;
      }
  }
#pragma unroll
  for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float shift = rows.largest[m][half] == -INFINITY ? 0 : rows.largest[m][half] * factor;
#pragma unroll
      for (int n = 0; n < kChunk / 8; ++n)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          float& score = scores.of[m][n][i];
          score = fast_exp2(math::fma(score, factor, -shift));
          rows.total[m][half] += score;
        }
    }
}

// kOptions: a bias and dropout may be given, and the head size may be less than kSize.
template <class T, int kSize, bool kOptions>
__global__ void __launch_bounds__(kBlockThreads, kSize == 64 && !kOptions ? 3 : 2)
    attention_kernel(Parameters p, int tiles) {
  using Tile = FragmentTile<T, kSize>;
  constexpr int kRowBlocks = row_blocks(kSize, kOptions), kQueries = queries_of_block(kSize, kOptions),
                kKeys = keys_of_tile(kSize);
  const SharedAddress memory = shared_address(dynamic_span<uint4>().data());
  const AttentionShape& shape = p.shape;
  const AttentionTile part(tiles, shape.heads);
  // Where only later queries see a key, these have most to do and begin first.
  const int first = (tiles - 1 - part.tile) * kQueries, kv_head = part.head / shape.group;
  const int end = first + kQueries < shape.queries ? first + kQueries : shape.queries;
  // For masks, keys and queries are counted from the first key that is no padding; `limit` is for these queries.
  const int start = shape.key_start(part.b, shape.key_limit(part.b));
  const int limit = shape.visible(shape.key_limit(part.b) - start, end - 1 - start);
  const int first_key = shape.begin(0, first - start) / kChunk * kChunk;
  const int own_row = warp_id() * kRowBlocks * 16, own_first = first + own_row - start,
            own_last = own_first + kRowBlocks * 16 - 1, lane = lane_id();
  const float scale = kOptions ? 1 : shape.scale, factor = scale * kLog2OfE;  // of scores that are not scaled yet

  const Tile queries(memory, 0), own_queries = queries.from_row(own_row);
  Tile keys(memory, kQueries * Tile::kPitch), values = keys.from_row(2 * kKeys);  // of the tile that is worked on
  typename Tile::template Source<!kOptions> q(HeadView<T>(p.q, part.b, part.head), first),
      k(HeadView<T>(p.k, part.b, kv_head), start + first_key), v(HeadView<T>(p.v, part.b, kv_head), start + first_key);
  queries.template fetch<kQueries>(q, first, end);
  keys.template fetch<kKeys>(k, first_key, limit);
  values.template fetch<kKeys>(v, first_key, limit);
  commit_copies();

  Rows<kRowBlocks> rows;
  Sums<kRowBlocks, kSize / 8> sums;
  sums.clear();
#pragma unroll
  for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.largest[m][half] = -INFINITY;
      rows.total[m][half] = 0;
    }
  int other = kKeys * Tile::kPitch;  // from this tile to the other
  for (int key = first_key; key < limit; key += kKeys) {
    wait_copies<0>();
    __syncthreads();  // this tile is here, and the other was read
    if (key + kKeys < limit) {
      keys.moved(other).template fetch<kKeys>(k, key + kKeys, limit);
      values.moved(other).template fetch<kKeys>(v, key + kKeys, limit);
      commit_copies();
    }
#pragma unroll 1
    for (int chunk = 0; chunk < kKeys && key + chunk < shape.visible(limit, own_last); chunk += kChunk) {
      if (key + chunk + kChunk <= own_first + shape.behind) continue;
      Sums<kRowBlocks, kChunk / 8> scores;
      multiply_rows(scores, own_queries, keys.from_row(chunk), 0);
      if constexpr (kOptions)
        scale_and_add<T, false>(p.options.bias, part.b, part.head, shape.scale, scores, start + own_first,
                                start + key + chunk);
      if (key + chunk + kChunk > shape.visible(limit, own_first) || key + chunk < own_last + shape.behind)
        scores.each([&](float& score, int m, int n, int i) {
          const int query = own_first + 16 * m + lane / 4 + i / 2 * 8;
          const int column = key + chunk + 8 * n + lane % 4 * 2 + i % 2;
          if (column >= shape.visible(limit, query) || column < query + shape.behind) score = -INFINITY;
        });
      exponentials(scores, rows, sums, factor);
      if constexpr (kOptions)
        if (p.options.dropout.samples != nullptr) {
          const KeptByQuery<kRowBlocks> kept(p.options.dropout.of(part.b, part.head), start + own_first,
                                             start + key + chunk);
#pragma unroll
          for (int n = 0; n < kChunk / 8; ++n) kept.each_dropped(n, [&](int m, int i) { scores.of[m][n][i] = 0; });
        }
      add_product(sums, Weights<T, kRowBlocks, kChunk / 8>(scores), values.from_row(chunk), 0);
    }
    keys = keys.moved(other);
    values = values.moved(other);
    other = -other;
  }
  wait_copies<0>();
  __syncthreads();  // the queries are here, also where no key is seen

  // Read again, so that nothing of this is in registers before.
  const int own_query = own_first + shape.key_start(part.b, shape.key_limit(part.b));
  float inverse[kRowBlocks][2];
#pragma unroll
  for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& total = rows.total[m][half];
#pragma unroll
      for (int distance = 1; distance < 4; distance *= 2) total += __shfl_xor_sync(kAllLanes, total, distance);
      inverse[m][half] = total == 0 ? 0 : (kOptions ? p.options.dropout.factor : 1) / total;
      const int query = own_query + 16 * m + lane / 4 + 8 * half;
      if (lane % 4 == 0 && query < shape.queries)  // -inf where no key is seen
        p.lse[shape.row(part.b, part.head, query)] = rows.largest[m][half] * scale + math::log(total);
    }
  sums.each([&](float& sum, int m, int, int i) { sum *= inverse[m][i / 2]; });
  store_rows(sums, own_queries, HeadView<T>(p.out, part.b, part.head), own_query, shape.queries);
}

template <class T, int kSize, bool kOptions>
void run(const Parameters& parameters, const Tensor& q) {
  const AttentionShape& shape = parameters.shape;
  constexpr int kQueries = queries_of_block(kSize, kOptions);
  const auto tiles = static_cast<int>(ceil_div(shape.queries, kQueries));
  launch("attention", attention_kernel<T, kSize, kOptions>,
         {grid_of(std::int64_t{tiles} * shape.heads * shape.batch), kBlockThreads,
          (kQueries + 4 * keys_of_tile(kSize)) * kSize * sizeof(T)},
         stream_of(q), parameters, tiles);
}

template <class T, int kSize>
void run(const AttentionArgs& args) {
  const Parameters parameters = {AttentionShape(args), Heads(args.q),          Heads(args.k),         Heads(args.v),
                                 Heads(args.out),      args.lse.data<float>(), AttentionOptions(args)};
  if (parameters.options.any() || parameters.shape.size != kSize) run<T, kSize, true>(parameters, args.q);
  else run<T, kSize, false>(parameters, args.q);
}

}  // namespace

bool tensor_cores_take(const AttentionArgs& args) {
  if (args.q.dtype() != DType::bf16 && args.q.dtype() != DType::f16) return false;
  const std::int64_t size = args.q.dim(3);
  // Of a smaller head, more than half of a tile would be zeros.
  if (size % 8 != 0 || size < 32 || size > 128) return false;
  for (const Tensor& x : {args.q, args.k, args.v, args.out})
    if (!Heads(x).aligned(x, 8)) return false;
  return true;
}

void attention_on_tensor_cores(const AttentionArgs& args) {
  const bool narrow = args.q.dim(3) <= 64;
  if (args.q.dtype() == DType::bf16) return narrow ? run<bf16, 64>(args) : run<bf16, 128>(args);
  return narrow ? run<f16, 64>(args) : run<f16, 128>(args);
}

}  // namespace keel::cuda
