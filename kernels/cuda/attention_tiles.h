#pragma once
// Tiles of fp32 in shared memory and the two products of attention over them, for the kernels without tensor cores.
//
// A block is 16 x 16 threads (y, x). Thread (y, x) owns the rows y + 16 e of a result, and of scores the columns
// x + 16 f. So the 16 threads of one y hold a whole row: they reduce it by shuffles, and a tile of scores that they
// write is read by themselves alone.

#include "keel/kernels/cuda/attention_options.h"

namespace keel::cuda {

inline constexpr int kSide = 16;
inline constexpr int kTileThreads = kSide * kSide;

// The reduction of a value over the 16 threads of one row.
template <class Op>
__device__ float reduce_row(float value, Op op) {
  for (int distance = kSide / 2; distance > 0; distance /= 2)
    value = op(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

// Four neighbouring elements of a row, as fp32; those past the head size are zero.
struct HeadRows {
  Heads heads;
  int size;
  bool aligned;  // quads of elements can be moved in one access

  HeadRows(const Tensor& x) : heads(x), size(static_cast<int>(x.dim(3))), aligned(heads.aligned(x, 4)) {}  // NOLINT

  template <class T>
  struct alignas(4 * sizeof(T)) Quad {
    T values[4];
  };
  template <class T>
  __device__ float4 load_as(std::int64_t row, int column) const {
    const T* from = reinterpret_cast<const T*>(heads.data) + row + column;
    if (aligned && column + 4 <= size) {
      const Quad<T> quad = *reinterpret_cast<const Quad<T>*>(from);
      return {widen(quad.values[0]), widen(quad.values[1]), widen(quad.values[2]), widen(quad.values[3])};
    }
    float values[4] = {};
    for (int i = 0; i < 4; ++i)
      if (column + i < size) values[i] = widen(from[i]);
    return {values[0], values[1], values[2], values[3]};
  }
  __device__ float4 load(std::int64_t row, int column) const {
    switch (heads.dtype) {
      case DType::bf16: return load_as<bf16>(row, column);
      case DType::f16: return load_as<f16>(row, column);
      default: return load_as<float>(row, column);
    }
  }
  template <class T>
  __device__ void store_as(std::int64_t row, int column, const float (&in)[4]) const {
    T* to = reinterpret_cast<T*>(heads.data) + row + column;
    if (aligned && column + 4 <= size) {
      *reinterpret_cast<Quad<T>*>(to) = {{narrow<T>(in[0]), narrow<T>(in[1]), narrow<T>(in[2]), narrow<T>(in[3])}};
    } else {
      for (int i = 0; i < 4; ++i)
        if (column + i < size) to[i] = narrow<T>(in[i]);
    }
  }
  __device__ void store(std::int64_t row, int column, const float (&in)[4]) const {
    switch (heads.dtype) {
      case DType::bf16: return store_as<bf16>(row, column, in);
      case DType::f16: return store_as<f16>(row, column, in);
      default: return store_as<float>(row, column, in);
    }
  }
};

// P and dS of one pair of a query and a key that it sees.
struct ScorePair {
  float weight, grad;
  __device__ ScorePair(float product, float grad_product, float scale, const QueryStats& query) {
    weight = math::exp(math::fma(product, scale, -query.lse));
    grad = weight * (grad_product - query.delta);
  }
};

// Which weights of a tile of queries by keys are kept, in shared memory behind `bytes` others: a word for each query
// and eight keys.
template <int kTile>
struct KeptTile {
  static constexpr int kBlocks = kTile / 8, kWords = kTile * kBlocks, kBytes = 4 * kWords;

  decltype(dynamic_span<unsigned>()) memory = dynamic_span<unsigned>();
  int first;
  __device__ explicit KeptTile(std::size_t bytes) : first(static_cast<int>(bytes) / 4) {}

  // By the whole block; readable behind a barrier.
  __device__ void fill(const HeadDropout& dropout, int query, int key) const {
    for (int i = static_cast<int>(threadIdx.x); i < kWords; i += kTileThreads)
      memory[first + i] = dropout.keeps(query + i / kBlocks, key + i % kBlocks * 8);
  }
  __device__ bool operator()(int query, int key) const {
    const unsigned kept = memory[first + query * kBlocks + key / 8];
    return (kept >> key % 8 & 1) != 0;
  }
};

struct ScorePlace {
  int query, key;
};

// Scales scores and adds the bias to them: that of (e, f) belongs to the query and the key place(e, f).
template <int kEach, class Place>
__device__ void scale_and_add(const AttentionBias& bias, int b, int head, float scale, float (&scores)[kEach][kEach],
                              const Place& place) {
  const auto add = [&](auto bias_at) {
#pragma unroll
    for (int e = 0; e < kEach; ++e)
#pragma unroll
      for (int f = 0; f < kEach; ++f) scores[e][f] = math::fma(scores[e][f], scale, bias_at(place(e, f)));
  };
  if (bias.data == nullptr) return add([](ScorePlace) { return 0.0f; });
  const HeadBias own = bias.of(b, head);
  switch (bias.dtype) {
    case DType::bf16: return add([&](ScorePlace at) { return own.at<bf16>(at.query, at.key); });
    case DType::f16: return add([&](ScorePlace at) { return own.at<f16>(at.query, at.key); });
    default: return add([&](ScorePlace at) { return own.at<float>(at.query, at.key); });
  }
}

// Tiles of kTile rows by kSize columns, and of kTile by kTile scores, in one array of shared memory. A row ends with
// four unused numbers, so that 16-byte accesses to one column of eight rows meet different banks.
template <int kTile, int kSize>
struct Tiles {
  static constexpr int kEach = kTile / kSide;         // rows, and columns of scores, of a thread
  static constexpr int kQuads = kSize / (4 * kSide);  // quads of columns of a thread in a row of kSize
  static constexpr int kRow = kSize / 4 + 1;          // quads from one row to the next
  static constexpr int kScoreRow = kTile / 4 + 1;     // likewise of scores
  static constexpr int kQuadsOfTile = kTile * kRow;
  static constexpr int kQuadsOfScores = kTile * kScoreRow;
  static constexpr std::size_t bytes(int tiles) { return 16u * (tiles * kQuadsOfTile + kQuadsOfScores); }

  decltype(dynamic_span<float4>()) quads = dynamic_span<float4>();
  decltype(dynamic_span<float>()) numbers = dynamic_span<float>();
  int x = static_cast<int>(threadIdx.x) % kSide, y = static_cast<int>(threadIdx.x) / kSide;

  // Rows [first, end) of a head become the tile; rows past `end`, and before `begin`, are zero.
  __device__ void load(int tile, const HeadRows& from, std::int64_t head, int first, int end, int begin = 0) const {
    for (int i = static_cast<int>(threadIdx.x); i < kTile * (kSize / 4); i += kTileThreads) {
      const int row = i / (kSize / 4), quad = i % (kSize / 4);
      float4 value = {0, 0, 0, 0};
      if (first + row < end && first + row >= begin && 4 * quad < from.size)
        value = from.load(head + (first + row) * from.heads.time_stride, 4 * quad);
      quads[tile * kQuadsOfTile + row * kRow + quad] = value;
    }
  }

  // scores(row, column) = the product of row `row` of tile a with row `column` of tile b.
  __device__ void multiply_rows(int a, int b, int size, float (&scores)[kEach][kEach]) const {
#pragma unroll
    for (int e = 0; e < kEach; ++e)
#pragma unroll
      for (int f = 0; f < kEach; ++f) scores[e][f] = 0;
    for (int quad = 0; 4 * quad < size; ++quad) {
      float4 left[kEach], right[kEach];
#pragma unroll
      for (int e = 0; e < kEach; ++e) left[e] = quads[a * kQuadsOfTile + (y + kSide * e) * kRow + quad];
#pragma unroll
      for (int f = 0; f < kEach; ++f) right[f] = quads[b * kQuadsOfTile + (x + kSide * f) * kRow + quad];
#pragma unroll
      for (int e = 0; e < kEach; ++e)
#pragma unroll
        for (int f = 0; f < kEach; ++f) {
          float sum = scores[e][f];
          sum = math::fma(left[e].x, right[f].x, sum);
          sum = math::fma(left[e].y, right[f].y, sum);
          sum = math::fma(left[e].z, right[f].z, sum);
          scores[e][f] = math::fma(left[e].w, right[f].w, sum);
        }
    }
  }

  // The tile of scores lies behind the `tiles` others.
  __device__ void store_scores(int tiles, const float (&scores)[kEach][kEach]) const {
    __syncwarp();  // the scores before were read
#pragma unroll
    for (int e = 0; e < kEach; ++e)
#pragma unroll
      for (int f = 0; f < kEach; ++f)
        numbers[4 * (tiles * kQuadsOfTile + (y + kSide * e) * kScoreRow) + x + kSide * f] = scores[e][f];
    __syncwarp();
  }

  __device__ float score(int tiles, int row, int column) const {
    return numbers[4 * (tiles * kQuadsOfTile + row * kScoreRow) + column];
  }

  // sums(row, column) += scores(row, j) times tile b's (j, column); `size` columns count.
  __device__ void add_product(int tiles, int b, int size, float (&sums)[kEach][kQuads][4]) const {
    for (int quad = 0; quad < kTile / 4; ++quad) {
      float4 weights[kEach];
#pragma unroll
      for (int e = 0; e < kEach; ++e) weights[e] = quads[tiles * kQuadsOfTile + (y + kSide * e) * kScoreRow + quad];
#pragma unroll
      for (int c = 0; c < kQuads; ++c) {
        if (4 * (x + kSide * c) >= size) continue;
        for (int j = 0; j < 4; ++j) {
          const float4 value = quads[b * kQuadsOfTile + (4 * quad + j) * kRow + x + kSide * c];
#pragma unroll
          for (int e = 0; e < kEach; ++e) {
            const float weight = j == 0 ? weights[e].x : j == 1 ? weights[e].y : j == 2 ? weights[e].z : weights[e].w;
            float(&sum)[4] = sums[e][c];
            sum[0] = math::fma(weight, value.x, sum[0]);
            sum[1] = math::fma(weight, value.y, sum[1]);
            sum[2] = math::fma(weight, value.z, sum[2]);
            sum[3] = math::fma(weight, value.w, sum[3]);
          }
        }
      }
    }
  }

  // Rows [first, end) of a head become sums times `factor`.
  __device__ void store(const HeadRows& to, std::int64_t head, int first, int end, float factor,
                        float (&sums)[kEach][kQuads][4]) const {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const int row = first + y + kSide * e;
      if (row >= end) continue;
#pragma unroll
      for (int c = 0; c < kQuads; ++c) {
        const int column = 4 * (x + kSide * c);
        if (column >= to.size) continue;
        for (int i = 0; i < 4; ++i) sums[e][c][i] *= factor;
        to.store(head + row * to.heads.time_stride, column, sums[e][c]);
      }
    }
  }
};

}  // namespace keel::cuda
