#pragma once
// The tensor-core product of bf16 and f16.
//
// A block computes a tile of the output; the tiles of a and b that it needs pass through shared memory, kDepth of k at
// a time, in a ring of three stages: one is multiplied while the next two arrive. Each warp keeps its part of the
// output in registers. What limits such a kernel on an H100 is shared memory, before the tensor cores (mma.sync reaches
// about 620 TFLOP/s there, or 1,270 products in a cycle of a multiprocessor; shared memory moves 128 bytes in a cycle):
//
//   tile       warps   output of a warp   stages      blocks on a     shared memory        from L2, bytes
//                                                     multiprocessor  busy, of all cycles  in a cycle
//   128 x 256  2 x 4   64 x 64            3 x 48 KiB  1               85 %                 30
//   128 x 128  2 x 2   64 x 64            3 x 32 KiB  2               93 %                 40
//   64 x 64    2 x 2   32 x 32            3 x 16 KiB  4               185 %                79
//
// The figures are counted, not measured. A warp of 64 x 64 multiplies each element that it reads from shared memory 64
// times, at 128 registers of sums. The large tile reads least, the small ones keep more multiprocessors busy.
//
// Rows of a stage are cut in chunks of 16 bytes, and chunk c of row r lies at place c ^ (r % 8): eight threads that
// read one column of chunks, or write one row of them, then meet eight different groups of banks.

#include "keel/kernels/cuda/matmul.h"
#include "keel/runtime/cuda/tensor_core.h"

namespace keel::cuda {
namespace tensor_matmul {

inline constexpr int kDepth = kSplitDepth;  // of k in a stage
inline constexpr int kSteps = kDepth / 16;  // of k in a stage, for multiply_add
inline constexpr int kStages = 3;
inline constexpr int kChunk = 8;  // elements in 16 bytes

template <int kTileRows, int kTileCols, int kWarpTile, int kBlocksAtOnce>
struct Tile {
  static constexpr int kRows = kTileRows, kCols = kTileCols, kWarpSide = kWarpTile, kBlocks = kBlocksAtOnce;
  static constexpr int kWarpsAcross = kCols / kWarpSide;
  static constexpr int kThreads = kRows / kWarpSide * kWarpsAcross * kWarp;
  static constexpr int kStageBytes = (kRows + kCols) * kDepth * 2;
};
using LargeTile = Tile<128, 256, 64, 1>;
using MediumTile = Tile<128, 128, 64, 2>;
using SmallTile = Tile<64, 64, 32, 4>;

// How an operand's tile lies in memory. "Side" is m for the left operand and n for the right one. Along k: a row for
// each element of the side; else a row for each k.
template <int kSide, bool kAlongK>
struct Rows {
  static constexpr int kCount = kAlongK ? kSide : kDepth;
  static constexpr int kChunks = (kAlongK ? kDepth : kSide) / kChunk;  // in a row
  static constexpr int kBytes = kChunks * 16;
};

// A thread's share in copying an operand's tiles from global to shared memory.
template <class T, int kSide, bool kAlongK, int kThreads>
struct TileCopy {
  using Lines = Rows<kSide, kAlongK>;
  static constexpr int kRowStep = kThreads / Lines::kChunks;  // rows from one chunk of a thread to its next
  static constexpr int kCopies = Lines::kCount / kRowStep;    // chunks of a thread
  static_assert(kRowStep % 8 == 0 && kCopies % kSteps == 0);

  const T* from;       // the thread's first chunk in the next tile
  std::int64_t pitch;  // elements from row to row
  int rows, elements;  // that exist, from the first chunk on: rows below it, elements to its right
  int to;              // bytes

  __device__ TileCopy(const T* matrix, std::int64_t row_pitch, int side, int sides, int k, int k_end)
      : pitch(row_pitch) {
    const int chunk = static_cast<int>(threadIdx.x) % Lines::kChunks;
    const int row = static_cast<int>(threadIdx.x) / Lines::kChunks;
    const int first_row = (kAlongK ? side : k) + row, first_element = (kAlongK ? k : side) + chunk * kChunk;
    from = matrix + first_row * pitch + first_element;
    rows = (kAlongK ? sides : k_end) - first_row;
    elements = (kAlongK ? k_end : sides) - first_element;
    to = row * Lines::kBytes + (chunk ^ row % 8) * 16;
  }

  // Starts one part in kSteps of the thread's copies to a stage. What lies past an edge becomes zero.
  __device__ void start(int part, SharedAddress stage) const {
    const int bytes = 2 * std::max(0, std::min(int{kChunk}, elements));
#pragma unroll
    for (int c = 0; c < kCopies / kSteps; ++c) {
      const int i = part * (kCopies / kSteps) + c, row = i * kRowStep;
      copy_async(stage + (to + row * Lines::kBytes), from + row * pitch, row < rows ? bytes : 0);
    }
  }
  __device__ void advance() {
    from += kAlongK ? kDepth : kDepth * pitch;
    (kAlongK ? elements : rows) -= kDepth;
  }
};

// Where a lane reads an operand's registers from. A load brings 16 x 16 elements: of the left operand the a of one
// multiply_add, of the right one b0 and b1 of two neighbours.
template <int kSide, bool kAlongK, bool kLeft>
struct TileRead {
  using Lines = Rows<kSide, kAlongK>;
  int line, swizzled;  // bytes

  __device__ explicit TileRead(int side) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, r = lane % 8;
    // The four matrices of a load: is this lane's the lower one (by rows of memory), the right one?
    const bool lower = kLeft == kAlongK ? lane / 8 % 2 : lane / 16, right = kLeft == kAlongK ? lane / 16 : lane / 8 % 2;
    const int row = (kAlongK ? side : 0) + (lower ? 8 : 0) + r;
    line = row * Lines::kBytes;
    swizzled = (((kAlongK ? 0 : side / kChunk) + (right ? 1 : 0)) ^ r) * 16;
  }
  // The 16 elements of the side from 16 i on, in step `step` of the stage.
  __device__ void load(SharedAddress stage, int i, int step, unsigned (&out)[4]) const {
    const int down = kAlongK ? i : step, across = kAlongK ? step : i;
    const SharedAddress from = stage + (line + (swizzled ^ across * 32) + down * 16 * Lines::kBytes);
    if constexpr (kAlongK) load_matrices(out, from);
    else load_matrices_transposed(out, from);
  }
};

template <class T, class Tile, bool kLeftAlongK, bool kRightAlongK>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks) multiply_kernel(Product p) {
  constexpr int kSide = Tile::kWarpSide, kBlocks = kSide / 16;  // of 16 x 16 in a warp's side
  BlockWork work = work_of_block<Tile::kRows, Tile::kCols>(p);
  const auto memory = dynamic_span<float>();
  const SharedAddress shared = shared_address(memory.data());
  constexpr int kLeftBytes = Tile::kRows * kDepth * 2;

  TileCopy<T, Tile::kRows, kLeftAlongK, Tile::kThreads> left_copy(
      static_cast<const T*>(p.a) + p.batch_offset(Product::kA, work.batch), kLeftAlongK ? p.a_row : p.a_col, work.row,
      p.m, work.k_begin, work.k_end);
  TileCopy<T, Tile::kCols, kRightAlongK, Tile::kThreads> right_copy(
      static_cast<const T*>(p.b) + p.batch_offset(Product::kB, work.batch), kRightAlongK ? p.b_col : p.b_row, work.col,
      p.n, work.k_begin, work.k_end);
  const auto start_copies = [&](int part, int stage) {
    left_copy.start(part, shared + stage * Tile::kStageBytes);
    right_copy.start(part, shared + (stage * Tile::kStageBytes + kLeftBytes));
    if (part == kSteps - 1) {
      left_copy.advance();
      right_copy.advance();
    }
  };

  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int warp_row = warp / Tile::kWarpsAcross * kSide, warp_col = warp % Tile::kWarpsAcross * kSide;
  const TileRead<Tile::kRows, kLeftAlongK, true> left_read(warp_row);
  const TileRead<Tile::kCols, kRightAlongK, false> right_read(warp_col);
  unsigned left[2][kBlocks][4], right[2][kBlocks][4];
  const auto read = [&](int step, int stage) {
    const SharedAddress from = shared + stage * Tile::kStageBytes;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) left_read.load(from, i, step, left[step % 2][i]);
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) right_read.load(from + kLeftBytes, j, step, right[step % 2][j]);
  };

  float sums[kBlocks][2 * kBlocks][4] = {};
  const int tiles = (work.k_end - work.k_begin + kDepth - 1) / kDepth;
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < tiles)
#pragma unroll
      for (int part = 0; part < kSteps; ++part) start_copies(part, s);
    commit_copies();
  }
  wait_copies<kStages - 2>();
  __syncthreads();
  if (tiles > 0) read(0, 0);

  // The registers of a step are read one step ahead. After the barrier of a tile its stage is free, and the next tile's
  // first registers can be read.
  int stage = 0, free_stage = kStages - 1;
  for (int t = 0; t < tiles; ++t) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (t + kStages - 1 < tiles) start_copies(step, free_stage);
      if (step < kSteps - 1) {
        read(step + 1, stage);
      } else {
        commit_copies();
        wait_copies<kStages - 2>();
        __syncthreads();
        free_stage = stage;
        stage = stage + 1 == kStages ? 0 : stage + 1;
        if (t + 1 < tiles) read(0, stage);
      }
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
#pragma unroll
        for (int j = 0; j < 2 * kBlocks; ++j)
          multiply_add<T>(sums[i][j], left[step % 2][i], right[step % 2][j / 2][j % 2 * 2],
                          right[step % 2][j / 2][j % 2 * 2 + 1]);
    }
  }

  // The stages are free: each warp turns its sums there into runs of eight columns.
  constexpr int kPitch = kSide + 8, kRunsAcross = kSide / 8;
  static_assert(Tile::kThreads / kWarp * kSide * kPitch * 4 <= kStages * Tile::kStageBytes);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, own = warp * kSide * kPitch;
#pragma unroll
  for (int i = 0; i < kBlocks; ++i)
#pragma unroll
    for (int j = 0; j < 2 * kBlocks; ++j)
#pragma unroll
      for (int q = 0; q < 4; ++q)
        memory[own + (i * 16 + q / 2 * 8 + lane / 4) * kPitch + j * 8 + lane % 4 * 2 + q % 2] = sums[i][j][q];
  __syncwarp();
  locate_output(p, work);
  const int col = lane % kRunsAcross * 8;
#pragma unroll 1
  for (int row = lane / kRunsAcross; row < kSide; row += kWarp / kRunsAcross) {
    float run[8];
#pragma unroll
    for (int c = 0; c < 8; ++c) run[c] = memory[own + row * kPitch + col + c];
    put_sums<T>(p, work, work.row + warp_row + row, work.col + warp_col + col, run);
  }
}

template <class T, class Tile>
void queue(const Product& p, cudaStream_t stream) {
  const LaunchShape shape = {grid_of(count_blocks(p, Tile::kRows, Tile::kCols)), Tile::kThreads,
                             std::size_t{kStages} * Tile::kStageBytes};
  const auto run = [&](auto kernel) { launch("matmul on tensor cores", kernel, shape, stream, p); };
  const bool left_along_k = p.a_col == 1 && p.a_row % kChunk == 0;
  const bool right_along_k = p.b_row == 1 && p.b_col % kChunk == 0;
  if (left_along_k && right_along_k) run(multiply_kernel<T, Tile, true, true>);
  else if (left_along_k) run(multiply_kernel<T, Tile, true, false>);
  else if (right_along_k) run(multiply_kernel<T, Tile, false, true>);
  else run(multiply_kernel<T, Tile, false, false>);
}

}  // namespace tensor_matmul

template <class T>
void launch_tensor_cores(const Product& product, MatmulTile tile, cudaStream_t stream) {
  using namespace tensor_matmul;
  if (tile == MatmulTile::large && shared_memory_limit() < std::size_t{kStages} * LargeTile::kStageBytes)
    tile = MatmulTile::medium;
  switch (tile) {
    case MatmulTile::large: return queue<T, LargeTile>(product, stream);
    case MatmulTile::medium: return queue<T, MediumTile>(product, stream);
    case MatmulTile::small: return queue<T, SmallTile>(product, stream);
  }
}

}  // namespace keel::cuda
