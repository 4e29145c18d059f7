#include "keel/kernels/cuda/attention_padding.h"

#include "keel/kernels/cuda/attention_tiles.h"

namespace keel::cuda {
namespace {

__global__ void sequence_lengths_kernel(AttentionShape shape, std::int32_t* queries, std::int32_t* keys) {
  const int b = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (b >= shape.batch) return;
  queries[b] = shape.queries;
  keys[b] = shape.key_limit(b);
}

// Sixteen threads for each row of (batch, heads, time).
__global__ void __launch_bounds__(kTileThreads)
    clear_rows_kernel(AttentionShape shape, HeadRows x, int heads, int time, bool of_keys, float* lse) {
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (kTileThreads / kSide) + static_cast<int>(threadIdx.x) / kSide;
  const std::int64_t head_of_all = row / time;
  const int t = static_cast<int>(row - head_of_all * time), b = static_cast<int>(head_of_all / heads);
  if (b >= shape.batch) return;
  const int limit = shape.key_limit(b);
  if (of_keys ? t < limit : limit > 0) return;
  const std::int64_t at = x.heads.at(b, static_cast<int>(head_of_all % heads)) + t * x.heads.time_stride;
  for (int column = static_cast<int>(threadIdx.x) % kSide * 4; column < x.size; column += 4 * kSide)
    x.store(at, column, {0, 0, 0, 0});
  if (lse != nullptr && threadIdx.x % kSide == 0) lse[row] = -INFINITY;
}

void clear_rows(const AttentionArgs& args, const Tensor& x, bool of_keys, float* lse) {
  if (x.numel() == 0) return;
  const auto rows = x.dim(0) * x.dim(1) * x.dim(2);
  launch("attention, padding", clear_rows_kernel, {grid_of(ceil_div(rows, kTileThreads / kSide)), kTileThreads},
         stream_of(x), AttentionShape(args), HeadRows(x), static_cast<int>(x.dim(1)), static_cast<int>(x.dim(2)),
         of_keys, lse);
}

}  // namespace

void write_sequence_lengths(const AttentionArgs& args, const Tensor& queries, const Tensor& keys) {
  constexpr int kThreads = 128;
  launch("attention, lengths", sequence_lengths_kernel,
         {static_cast<unsigned>(ceil_div(queries.numel(), kThreads)), kThreads}, stream_of(queries),
         AttentionShape(args), queries.data<std::int32_t>(), keys.data<std::int32_t>());
}

void clear_blind_queries(const AttentionArgs& args, const Tensor& x, const Tensor& lse) {
  clear_rows(args, x, false, lse.defined() ? lse.data<float>() : nullptr);
}

void clear_padded_keys(const AttentionArgs& args, const Tensor& x) { clear_rows(args, x, true, nullptr); }

}  // namespace keel::cuda
