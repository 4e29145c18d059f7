// Mean squares of a matrix by its rows and columns.

#include "keel/kernels/factors.h"

#include <algorithm>

#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/device.h"
#include "keel/kernels/step_state.h"

namespace keel::cuda {
namespace {

constexpr int kThreads = 256;

const StepState* state_of(const Tensor& step) { return reinterpret_cast<const StepState*>(step.data<std::uint8_t>()); }

// A part of a batch of matrices: elements [begin, end) of all.
template <class T>
struct Part {
  const T* numbers;
  std::int64_t begin, end;

  __device__ double square(std::int64_t at, float scale) const {
    const auto g = static_cast<double>(widen(numbers[at - begin]) * scale);
    return g * g;
  }
};

__device__ float scale_of(const StepState* state) { return static_cast<float>(rules::gradient_factor(*state, false)); }

// A block for each row of the batch.
template <class T>
__global__ void sum_rows_kernel(Part<T> part, Factored shape, const StepState* state, double* sums) {
  if (state->taken == 0) return;
  KEEL_SHARED(double, scratch, kWarp);
  const std::int64_t row = blockIdx.x, start = row * shape.columns;
  const std::int64_t first = std::max(part.begin, start), last = std::min(part.end, start + shape.columns);
  const float scale = scale_of(state);
  double sum = 0;
  for (std::int64_t at = first + threadIdx.x; at < last; at += kThreads) sum += part.square(at, scale);
  sum = reduce_block(sum, 0.0, Sum{}, scratch);
  if (threadIdx.x == 0) sums[row / shape.rows * (shape.rows + shape.columns) + row % shape.rows] = sum;
}

constexpr std::int64_t kChunkRows = 128;

// partial[chunk][column]: a thread for each column of a chunk of rows, which are of one matrix.
template <class T>
__global__ void sum_columns_kernel(Part<T> part, Factored shape, std::int64_t chunks, const StepState* state,
                                   double* partial) {
  if (state->taken == 0) return;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= shape.columns) return;
  const std::int64_t chunk = blockIdx.y % chunks, matrix = blockIdx.y / chunks;
  const std::int64_t first = matrix * shape.rows + chunk * kChunkRows;
  const std::int64_t last = matrix * shape.rows + std::min(shape.rows, (chunk + 1) * kChunkRows);
  const float scale = scale_of(state);
  double sum = 0;
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t at = row * shape.columns + column;
    if (at >= part.begin && at < part.end) sum += part.square(at, scale);
  }
  partial[static_cast<std::int64_t>(blockIdx.y) * shape.columns + column] = sum;
}

__global__ void add_chunks_kernel(const double* partial, Factored shape, std::int64_t chunks, const StepState* state,
                                  double* sums) {
  if (state->taken == 0) return;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= shape.batch * shape.columns) return;
  const std::int64_t matrix = at / shape.columns, column = at % shape.columns;
  double sum = 0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
    sum += partial[(matrix * chunks + chunk) * shape.columns + column];
  sums[matrix * (shape.rows + shape.columns) + shape.rows + column] = sum;
}

void sum_factors(const Tensor& gradient, std::int64_t begin, const Factored& shape, const Tensor& step,
                 const Tensor& sums) {
  const std::int64_t chunks = ceil_div(shape.rows, kChunkRows), groups = shape.batch * chunks;
  KEEL_CHECK(groups <= 65535, "sum_factors: ", shape.batch, " matrices of ", shape.rows,
             " rows are more than a grid has room for");
  const Tensor partial = empty(sums.context(), {groups * shape.columns}, DType::f64, Purpose::workspace);
  double* const out = sums.data<double>();
  visit_kernel_type("sum_factors", gradient.dtype(), gradient.device(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Part<T> part{gradient.data<T>(), begin, begin + gradient.numel()};
    launch("sum_factors", sum_rows_kernel<T>, {grid_of(shape.batch * shape.rows), kThreads}, stream_of(sums), part,
           shape, state_of(step), out);
    launch("sum_factors", sum_columns_kernel<T>,
           {dim3(grid_of(ceil_div(shape.columns, std::int64_t{kThreads})), static_cast<unsigned>(groups)), kThreads},
           stream_of(sums), part, shape, chunks, state_of(step), partial.data<double>());
  });
  launch("sum_factors", add_chunks_kernel,
         {grid_of(ceil_div(shape.batch * shape.columns, std::int64_t{kThreads})), kThreads}, stream_of(sums),
         partial.data<double>(), shape, chunks, state_of(step), out);
}

// A block for each matrix.
__global__ void settle_kernel(Factored shape, AdafactorSettings settings, const StepState* state, float* rows,
                              float* columns, double* sums) {
  if (state->taken == 0) return;
  KEEL_SHARED(double, scratch, kWarp);
  const std::int64_t matrix = blockIdx.x;
  const rules::Settling settling(settings, *state);
  sums += matrix * (shape.rows + shape.columns);
  rows += matrix * shape.rows;
  columns += matrix * shape.columns;
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < shape.rows; i += kThreads) {
    sums[i] = settling(rows[i], sums[i], shape.columns);
    sum += sums[i];
  }
  for (std::int64_t j = threadIdx.x; j < shape.columns; j += kThreads)
    sums[shape.rows + j] = settling(columns[j], sums[shape.rows + j], shape.rows);
  const double mean = reduce_block(sum, 0.0, Sum{}, scratch) / static_cast<double>(shape.rows);
  for (std::int64_t i = threadIdx.x; i < shape.rows; i += kThreads) sums[i] /= mean;
}

void settle_factors(const SettleArgs& args) {
  launch("settle_factors", settle_kernel, {grid_of(args.shape.batch), kThreads}, stream_of(args.sums), args.shape,
         args.settings, state_of(args.step), args.rows.data<float>(), args.columns.data<float>(),
         args.sums.data<double>());
}

__global__ void expand_kernel(const double* factors, Factored shape, std::int64_t begin, std::int64_t count,
                              float* root) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count) return;
  const std::int64_t row = (begin + at) / shape.columns, column = (begin + at) % shape.columns;
  const double* const matrix = factors + row / shape.rows * (shape.rows + shape.columns);
  root[at] = rules::root_of_factors<float>(matrix[row % shape.rows], matrix[shape.rows + column]);
}

void expand_factors(const Tensor& factors, const Factored& shape, std::int64_t begin, const Tensor& root) {
  if (root.numel() == 0) return;
  launch("expand_factors", expand_kernel, {grid_of(ceil_div(root.numel(), std::int64_t{kThreads})), kThreads},
         stream_of(root), factors.data<double>(), shape, begin, root.numel(), root.data<float>());
}

}  // namespace

void add_factors(KernelTable& table) {
  table.sum_factors = sum_factors;
  table.settle_factors = settle_factors;
  table.expand_factors = expand_factors;
}

}  // namespace keel::cuda
