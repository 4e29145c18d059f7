#pragma once
// Tiles of bf16 or f16 rows in shared memory, and how a warp's products read and write them.
//
// A row of 64 or 128 elements is 8 or 16 pieces of 16 bytes. Piece c of row r lies at place c ^ (r % 8) of its row, so
// that one piece of eight neighbouring rows, which is what a matrix load reads, covers all banks once.

#include "keel/kernels/cuda/attention_shape.h"
#include "keel/runtime/cuda/tensor_core.h"

namespace keel::cuda {

inline constexpr int kWarps = 4;  // of a block
inline constexpr int kBlockThreads = kWarps * kWarp;
inline constexpr float kLog2OfE = 1.4426950408889634f, kLnOf2 = 0.6931471805599453f;

// 2^x within 2 ulp; results below 2^-126 are 0.
__device__ inline float exp2_flushed(float x) {
#ifdef KEEL_EMULATED
  return x < -126 ? 0 : std::exp2(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int warp_id() { return static_cast<int>(threadIdx.x) / kWarp; }

// The rows of one head in global memory.
template <class T>
struct HeadView {
  T* data;
  std::int64_t stride;
  __device__ HeadView(const Heads& heads, int b, int head)
      : data(reinterpret_cast<T*>(heads.data) + heads.at(b, head)), stride(heads.time_stride) {}
};

template <class T, int kSize>
struct FragmentTile {
  static constexpr int kPieces = kSize / 8;
  static constexpr int kRowsAtOnce = kBlockThreads / kPieces;  // that a block copies together

  T* data;  // of the tile, in the block's dynamic shared memory

  __device__ T* place(int row, int piece) const { return data + row * kSize + (piece ^ row % 8) * 8; }

  // Starts copies of kRows rows of a head from `first` on; rows past `end` become zero. By the whole block.
  template <int kRows>
  __device__ void fetch(const HeadView<T>& from, int first, int end) const {
    static_assert(kRows % kRowsAtOnce == 0);
    const int thread = static_cast<int>(threadIdx.x), own_row = thread / kPieces, piece = thread % kPieces;
    const T* source = from.data + (first + own_row) * from.stride + piece * 8;
#pragma unroll
    for (int i = 0; i < kRows / kRowsAtOnce; ++i) {
      const int row = own_row + i * kRowsAtOnce;
      const bool inside = first + row < end;
      copy_async(shared_address(place(row, piece)), inside ? source + i * kRowsAtOnce * from.stride : from.data,
                 inside ? 16 : 0);
    }
  }

  // The (16, 16) operand a: rows from `row` on, columns from 16 step on.
  __device__ void load_left(unsigned (&a)[4], int row, int step) const {
    const int lane = lane_id();
    load_matrices(a, shared_address(place(row + lane % 16, 2 * step + lane / 16)));
  }
  // Two neighbouring operands b of (16, 8), the rows of the tile being their columns: columns of the tile from 16 step
  // on, its rows from `row` on. b[0], b[1] are the first, b[2], b[3] the second.
  __device__ void load_right(unsigned (&b)[4], int row, int step) const {
    const int lane = lane_id();
    load_matrices(b, shared_address(place(row + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2)));
  }
  // The same with the rows of the tile as rows: the tile's rows from `row` on, its columns from 16 pair on.
  __device__ void load_right_rows(unsigned (&b)[4], int row, int pair) const {
    const int lane = lane_id();
    load_matrices_transposed(b, shared_address(place(row + lane % 16, 2 * pair + lane / 16)));
  }
};

// Sums of one warp: 16 kRowBlocks rows by 8 kColumnBlocks columns, in the registers of its lanes. Lane 4 g + t has of
// each (16, 8) block the rows g (sum[0], sum[1]) and g + 8 (sum[2], sum[3]) at columns 2t and 2t + 1.
template <int kRowBlocks, int kColumnBlocks>
struct Sums {
  float of[kRowBlocks][kColumnBlocks][4];

  __device__ void clear() {
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (int n = 0; n < kColumnBlocks; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) of[m][n][i] = 0;
  }
  template <class F>  // f(sum&, row block, column block, i)
  __device__ void each(F&& f) {
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (int n = 0; n < kColumnBlocks; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) f(of[m][n][i], m, n, i);
  }
};

// Sums rounded to T, two to a register: the operand a of the next product, which needs no other lane's numbers.
template <class T, int kRowBlocks, int kColumnBlocks>
struct Weights {
  unsigned of[kRowBlocks][kColumnBlocks / 2][4];

  __device__ explicit Weights(const Sums<kRowBlocks, kColumnBlocks>& sums) {
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (int step = 0; step < kColumnBlocks / 2; ++step)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&from)[4] = sums.of[m][2 * step + i / 2];
          of[m][step][i] = pack_pair<T>(from[i % 2 * 2], from[i % 2 * 2 + 1]);
        }
  }
};

// scores = rows of `left` times rows of `right`: (16 kRowBlocks, 8 kColumnBlocks).
template <class T, int kSize, int kRowBlocks, int kColumnBlocks>
__device__ void multiply_rows(Sums<kRowBlocks, kColumnBlocks>& scores, const FragmentTile<T, kSize>& left, int left_row,
                              const FragmentTile<T, kSize>& right, int right_row) {
  scores.clear();
#pragma unroll
  for (int step = 0; step < kSize / 16; ++step) {
    unsigned a[kRowBlocks][4];
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) left.load_left(a[m], left_row + 16 * m, step);
#pragma unroll
    for (int n = 0; n < kColumnBlocks; n += 2) {
      unsigned b[4];
      right.load_right(b, right_row + 8 * n, step);
#pragma unroll
      for (int m = 0; m < kRowBlocks; ++m) {
        multiply_add<T>(scores.of[m][n], a[m], b[0], b[1]);
        multiply_add<T>(scores.of[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// sums += weights times the rows of `right`: (16 kRowBlocks, kSize) from (16 kRowBlocks, 8 kColumnBlocks).
template <class T, int kSize, int kRowBlocks, int kColumnBlocks>
__device__ void add_product(Sums<kRowBlocks, kSize / 8>& sums, const Weights<T, kRowBlocks, kColumnBlocks>& weights,
                            const FragmentTile<T, kSize>& right, int right_row) {
#pragma unroll
  for (int step = 0; step < kColumnBlocks / 2; ++step)
#pragma unroll
    for (int pair = 0; pair < kSize / 16; ++pair) {
      unsigned b[4];
      right.load_right_rows(b, right_row + 16 * step, pair);
#pragma unroll
      for (int m = 0; m < kRowBlocks; ++m) {
        multiply_add<T>(sums.of[m][2 * pair], weights.of[m][step], b[0], b[1]);
        multiply_add<T>(sums.of[m][2 * pair + 1], weights.of[m][step], b[2], b[3]);
      }
    }
}

// Rows [first, end) of a head become a warp's sums, by way of the rows of a tile that no other warp reads, so that
// whole rows are stored. Row 0 of the sums is row `row` of the tile and row `first` of the head.
template <class T, int kSize, int kRowBlocks>
__device__ void store_rows(const Sums<kRowBlocks, kSize / 8>& sums, const FragmentTile<T, kSize>& tile, int row,
                           const HeadView<T>& to, int first, int end) {
  const auto words = dynamic_span<unsigned>();
  const auto packs = dynamic_span<uint4>();
  const auto word_of = [&](const T* place) {
    return (reinterpret_cast<const std::byte*>(place) - reinterpret_cast<const std::byte*>(words.data())) / 4;
  };
  const int lane = lane_id();
  __syncwarp();  // what the tile held was read
#pragma unroll
  for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
    for (int n = 0; n < kSize / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        words[word_of(tile.place(row + 16 * m + lane / 4 + 8 * half, n)) + lane % 4] =
            pack_pair<T>(sums.of[m][n][2 * half], sums.of[m][n][2 * half + 1]);
  __syncwarp();
  constexpr int kPieces = FragmentTile<T, kSize>::kPieces, kRowsAtOnce = kWarp / kPieces;
  const int piece = lane % kPieces;
#pragma unroll
  for (int i = 0; i < 16 * kRowBlocks / kRowsAtOnce; ++i) {
    const int r = lane / kPieces + i * kRowsAtOnce;
    if (first + r >= end) continue;
    *reinterpret_cast<uint4*>(to.data + (first + r) * to.stride + piece * 8) =
        packs[word_of(tile.place(row + r, piece)) / 4];
  }
}

}  // namespace keel::cuda
