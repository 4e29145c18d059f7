#pragma once
// What keel's CUDA products share: the problem as kernels see it, its division among blocks, and what becomes of sums.

#include <algorithm>

#include "keel/kernels/cuda/device.h"
#include "keel/kernels/cuda/matmul_plan.h"
#include "keel/kernels/functors.h"

namespace keel::cuda {

// MatmulArgs without tensors. Element (i, j) of a matrix lies at i * row + j * col.
struct Product {
  enum Role { kA, kB, kOut, kPreActivation, kRoles };
  int m = 0, n = 0, k = 0;
  const void* a = nullptr;  // (m, k) of T
  const void* b = nullptr;  // (k, n) of T
  void* out = nullptr;      // (m, n) of T or float
  void* pre_activation = nullptr;
  const void* bias = nullptr;  // (n) of T
  std::int64_t a_row = 0, a_col = 0, b_row = 0, b_col = 0, out_row = 0, pre_activation_row = 0;
  float alpha = 1;
  bool accumulate = false;
  Epilogue epilogue = Epilogue::none;
  bool out_is_float = false;
  bool runs = false;  // rows of what sums turn into begin at multiples of 16 bytes

  int batches = 1, batch_rank = 0, batch_shape[kMaxRank] = {};
  std::int64_t batch_strides[kRoles][kMaxRank] = {};

  // With more than one split each takes a range of k, and sums stay in partial, (splits, batches, m, partial_row).
  int splits = 1;
  float* partial = nullptr;
  std::int64_t partial_row = 0;

  // Elements from the first matrix of a role to that of a batch.
  __device__ std::int64_t batch_offset(Role role, int batch) const {
    std::int64_t offset = 0;
#pragma unroll 1
    for (int d = batch_rank - 1; d >= 0; --d) {
      const int rest = batch / batch_shape[d];
      offset += (batch - rest * batch_shape[d]) * batch_strides[role][d];
      batch = rest;
    }
    return offset;
  }
};

inline constexpr int kSplitDepth = 64;  // splits begin at multiples of it

// What a block computes: rows and columns from (row, col) on, over [k_begin, k_end). Offsets in elements, of its batch.
struct BlockWork {
  int batch, split, row, col, k_begin, k_end;
  std::int64_t out_offset, pre_activation_offset;
};

inline std::int64_t count_blocks(const Product& p, int rows, int cols) {
  return ceil_div(p.m, rows) * ceil_div(p.n, cols) * p.splits * p.batches;
}

// Eight rows of tiles go side by side: the blocks that run at the same time then form a square of the output and share
// what they read in the L2 cache.
template <int kRows, int kCols>
__device__ BlockWork work_of_block(const Product& p) {
  constexpr int kGroup = 8;
  const int tiles_m = (p.m + kRows - 1) / kRows, tiles_n = (p.n + kCols - 1) / kCols;
  const auto tiles = static_cast<unsigned>(tiles_m) * static_cast<unsigned>(tiles_n);
  const int tile = static_cast<int>(blockIdx.x % tiles), outer = static_cast<int>(blockIdx.x / tiles);
  const int first = tile / (kGroup * tiles_n) * kGroup, rest = tile % (kGroup * tiles_n);
  const int group = std::min(kGroup, tiles_m - first);
  BlockWork work;
  work.row = (first + rest % group) * kRows;
  work.col = rest / group * kCols;
  work.split = outer % p.splits;
  work.batch = outer / p.splits;
  const int steps = (p.k + kSplitDepth - 1) / kSplitDepth, share = (steps + p.splits - 1) / p.splits * kSplitDepth;
  work.k_begin = std::min(p.k, work.split * share);
  work.k_end = std::min(p.k, work.k_begin + share);
  work.out_offset = work.pre_activation_offset = 0;  // see locate_output()
  return work;
}

// Late, so that the offsets need no registers during the product.
__device__ inline void locate_output(const Product& p, BlockWork& work) {
  work.out_offset = p.batch_offset(Product::kOut, work.batch);
  work.pre_activation_offset = p.batch_offset(Product::kPreActivation, work.batch);
}

// N neighbouring elements, moved in one access where `whole`, else the first `count`.
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) MatmulRun {
  T values[N];
};
template <class T, int N>
__device__ void load_some(const T* from, int count, bool whole, float (&to)[N]) {
  if (whole) {
    const auto run = *reinterpret_cast<const MatmulRun<T, N>*>(from);
    for (int i = 0; i < N; ++i) to[i] = widen(run.values[i]);
  } else {
    for (int i = 0; i < N; ++i) to[i] = i < count ? widen(from[i]) : 0.0f;
  }
}
template <class T, int N>
__device__ void store_some(T* to, int count, bool whole, const float (&from)[N]) {
  if (whole) {
    MatmulRun<T, N> run;
    for (int i = 0; i < N; ++i) run.values[i] = narrow<T>(from[i]);
    *reinterpret_cast<MatmulRun<T, N>*>(to) = run;
  } else {
    for (int i = 0; i < N; ++i)
      if (i < count) to[i] = narrow<T>(from[i]);
  }
}

// Writes sums of row `row` from column `col` on: alpha, bias, GELU, rounding, addition, in this order. GELU
// is of the rounded value, so that the fused product equals the separate operations.
template <class T, class Out, int N>
__device__ void finish_sums_as(const Product& p, const BlockWork& work, int row, int col, float (&sums)[N]) {
  const int count = std::min(N, p.n - col);
  const bool whole = p.runs && count == N;
  Out* out = static_cast<Out*>(p.out) + work.out_offset + row * p.out_row + col;
  for (int i = 0; i < N; ++i) sums[i] = p.alpha * sums[i];
  if (p.epilogue != Epilogue::none) {
    float bias[N];
    load_some(static_cast<const T*>(p.bias) + col, count, whole, bias);
    for (int i = 0; i < N; ++i) sums[i] = widen(narrow<Out>(sums[i] + bias[i]));
    if (p.pre_activation != nullptr)
      store_some(static_cast<Out*>(p.pre_activation) + work.pre_activation_offset + row * p.pre_activation_row + col,
                 count, whole, sums);
    if (p.epilogue == Epilogue::bias_gelu)
      for (int i = 0; i < N; ++i) sums[i] = GeluTanh{}.forward(sums[i]);
  }
  if (p.accumulate) {
    float before[N];
    load_some(out, count, whole, before);
    for (int i = 0; i < N; ++i) sums[i] = before[i] + sums[i];
  }
  store_some(out, count, whole, sums);
}

template <class T, int N>
__device__ void finish_sums(const Product& p, const BlockWork& work, int row, int col, float (&sums)[N]) {
  if (p.out_is_float) finish_sums_as<T, float>(p, work, row, col, sums);
  else finish_sums_as<T, T>(p, work, row, col, sums);
}

// The same for a block's sums, which are only a part where k is split.
template <class T, int N>
__device__ void put_sums(const Product& p, const BlockWork& work, int row, int col, float (&sums)[N]) {
  if (row >= p.m || col >= p.n) return;
  if (p.splits == 1) return finish_sums<T>(p, work, row, col, sums);
  const std::int64_t matrix = static_cast<std::int64_t>(work.split) * p.batches + work.batch;
  store_some(p.partial + (matrix * p.m + row) * p.partial_row + col, N, true, sums);
}

// Queues the tensor-core kernel, for bf16 and f16; each is a file of its own.
template <class T>
void launch_tensor_cores(const Product& product, MatmulTile tile, cudaStream_t stream);

}  // namespace keel::cuda
