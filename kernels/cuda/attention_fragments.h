#pragma once
// Tiles of bf16 or f16 rows in shared memory, and how a warp's products read and write them.
//
// A row of 64 or 128 elements, of which those past the head size are zero, is 8 or 16 pieces of 16 bytes. Piece c of
// row r lies at place c ^ (r % 8) of its row, so that one piece of eight neighbouring rows, which is what a matrix load
// reads, covers all banks once.

#include "keel/kernels/cuda/attention_shape.h"
#include "keel/runtime/cuda/fast_math.h"
#include "keel/runtime/cuda/tensor_core.h"

namespace keel::cuda {

inline constexpr int kWarps = 4;  // of a block
inline constexpr int kBlockThreads = kWarps * kWarp;
inline constexpr float kLog2OfE = 1.4426950408889634f;

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int warp_id() { return static_cast<int>(threadIdx.x) / kWarp; }

// The rows of one head in global memory.
template <class T>
struct HeadView {
  T* data;
  std::int64_t stride;
  int pieces;  // of a row
  __device__ HeadView(const Heads& heads, int b, int head)
      : data(reinterpret_cast<T*>(heads.data) + heads.at(b, head)), stride(heads.time_stride), pieces(heads.size / 8) {}
};

// All offsets count bytes. Those that depend on the lane are computed once; the loops add constants to them, or one
// exclusive or.
template <class T, int kSize>
struct FragmentTile {
  static constexpr int kPieces = kSize / 8, kPitch = 16 * kPieces;
  static constexpr int kRowsAtOnce = kBlockThreads / kPieces;  // that a block copies together
  static_assert(kRowsAtOnce % 8 == 0);

  SharedAddress memory;  // the block's dynamic shared memory
  int first;             // where in it the tile lies
  int copied, left, right;

  __device__ FragmentTile(SharedAddress memory, int first) : memory(memory), first(first) {
    const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
    copied = offset(thread / kPieces, thread % kPieces);
    left = offset(lane % 16, lane / 16);
    right = offset(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  }
  __device__ FragmentTile moved(int bytes) const {
    FragmentTile tile = *this;
    tile.first += bytes;
    return tile;
  }
  __device__ FragmentTile from_row(int row) const { return moved(row * kPitch); }  // a multiple of 8

  __device__ static int offset(int row, int piece) { return row * kPitch + 16 * ((piece & 8) + ((piece ^ row) & 7)); }
  // A lane's offset `row` rows, a multiple of 8, and two pieces times `step` further on.
  __device__ SharedAddress place(int lane_offset, int row, int step) const {
    return memory + (first + row * kPitch + step / 4 * 128 + (lane_offset ^ step % 4 * 32));
  }

  // A thread's part of the rows of a head from `row` on, to be fetched in order. kWhole: the head size is kSize.
  template <bool kWhole>
  struct Source {
    const T* next;
    std::int64_t step;
    int pieces;
    __device__ Source(const HeadView<T>& head, int row) : step(kRowsAtOnce * head.stride), pieces(head.pieces) {
      const int thread = static_cast<int>(threadIdx.x);
      next = head.data + (row + thread / kPieces) * head.stride + thread % kPieces * 8;
    }
  };
  // Starts copies of the next kRows rows, of which the first is row `row`; those before `begin` and past `end` become
  // zero. By the whole block.
  template <int kRows, bool kWhole>
  __device__ void fetch(Source<kWhole>& source, int row, int end, int begin = 0) const {
    static_assert(kRows % kRowsAtOnce == 0);
    const int thread = static_cast<int>(threadIdx.x);
    row += thread / kPieces - begin;
    end -= begin;
    if (!kWhole && thread % kPieces >= source.pieces) end = 0;
#pragma unroll
    for (int i = 0; i < kRows; i += kRowsAtOnce, source.next += source.step)
      copy_async(memory + (first + i * kPitch + copied), source.next,
                 static_cast<unsigned>(row + i) < static_cast<unsigned>(end) ? 16 : 0);
  }

  // The (16, 16) operand a: rows from `row` on, columns from 16 step on.
  __device__ void load_left(unsigned (&a)[4], int row, int step) const { load_matrices(a, place(left, row, step)); }
  // Two neighbouring operands b of (16, 8), the rows of the tile being their columns: columns of the tile from 16 step
  // on, its rows from `row` on. b[0], b[1] are the first, b[2], b[3] the second.
  __device__ void load_right(unsigned (&b)[4], int row, int step) const { load_matrices(b, place(right, row, step)); }
  // The same with the rows of the tile as rows: the tile's rows from `row` on, its columns from 16 pair on.
  __device__ void load_right_rows(unsigned (&b)[4], int row, int pair) const {
    load_matrices_transposed(b, place(left, row, pair));
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
__device__ void multiply_rows(Sums<kRowBlocks, kColumnBlocks>& scores, const FragmentTile<T, kSize>& left,
                              const FragmentTile<T, kSize>& right, int right_row) {
  scores.clear();
#pragma unroll 2  // more of them load more than the registers hold
  for (int step = 0; step < kSize / 16; ++step) {
    unsigned a[kRowBlocks][4];
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) left.load_left(a[m], 16 * m, step);
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

// Rows [first, end) of a head become a warp's sums, by way of rows of a tile that no other warp reads, so that whole
// rows are stored.
template <class T, int kSize, int kRowBlocks>
__device__ void store_rows(const Sums<kRowBlocks, kSize / 8>& sums, const FragmentTile<T, kSize>& tile,
                           const HeadView<T>& to, int first, int end) {
  using Tile = FragmentTile<T, kSize>;
  const auto words = dynamic_span<unsigned>();
  const auto packs = dynamic_span<uint4>();
  const unsigned lane = threadIdx.x % kWarp, start = static_cast<unsigned>(tile.first) / 16, row = lane / 4;
  const unsigned own = 4 * (start + row * Tile::kPieces) + lane % 4;
  __syncwarp();  // what the tile held was read
#pragma unroll
  for (unsigned n = 0; n < kSize / 8; ++n) {
    const unsigned place = own + 4 * ((n & 8) + ((n ^ row) & 7));
#pragma unroll
    for (unsigned m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (unsigned half = 0; half < 2; ++half)
        words[place + (64 * m + 32 * half) * Tile::kPieces] =
            pack_pair<T>(sums.of[m][n][2 * half], sums.of[m][n][2 * half + 1]);
  }
  __syncwarp();
  constexpr int kRowsAtOnce = kWarp / Tile::kPieces;
  const unsigned piece = lane % Tile::kPieces;
#pragma unroll
  for (unsigned i = 0; i < 16 * kRowBlocks; i += kRowsAtOnce) {
    const unsigned r = i + lane / Tile::kPieces;
    if (first + static_cast<int>(r) < end && static_cast<int>(piece) < to.pieces)
      *reinterpret_cast<uint4*>(to.data + (first + static_cast<int>(r)) * to.stride + piece * 8) =
          packs[start + r * Tile::kPieces + (piece & 8) + ((piece ^ r) & 7)];
  }
}

}  // namespace keel::cuda
