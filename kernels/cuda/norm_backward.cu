// The derivatives of layer norm and RMS norm. Parameter gradients are sums over rows: each chunk of rows leaves its own
// in workspace, and a second kernel adds the chunks in order. So there are no atomics, and the result depends on the
// shape alone.

#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/rows.h"

namespace keel::cuda {
namespace {

template <class T>
struct NormBackwardRows {
  const T *grad_output, *grad_sum, *x;  // (rows, cols); grad_sum may be null
  const T* weight;                      // (cols)
  const float *mean, *rstd;             // (rows); mean null for rms
  T* grad_x;                            // (rows, cols)
  float *weight_sums, *bias_sums;       // (chunks, cols); either may be null
  std::int64_t rows, cols, chunk;       // chunk: rows of one
  bool vector, vector_columns;
};

// With g = grad_output * weight and x_hat = (x - mean) rstd:
//   grad_x = rstd (g - mean(g) - x_hat mean(g x_hat)) + grad_sum, where rms norm has no mean(g).
struct RowSlope {
  float mean, rstd;
  float mean_grad, slope;  // x_hat mean(g x_hat) = (x - mean) slope

  template <class T>
  __device__ RowSlope(const NormBackwardRows<T>& args, float mean, float rstd, float sum, float dot)
      : mean(mean), rstd(rstd) {
    const float count = static_cast<float>(args.cols);
    mean_grad = args.mean == nullptr ? 0.0f : sum / count;
    slope = rstd * rstd * dot / count;
  }
  __device__ float operator()(float g, float x) const { return rstd * (g - mean_grad - (x - mean) * slope); }
};

// Two packs of a row for each thread, and of the sums of its columns.
template <class T>
using ColumnPacks = HeldRow<T, 2>;
constexpr int kMostWarps = kRowThreads / kWarp;
template <class T>
constexpr std::int64_t kHeldColumns = std::int64_t{2} * Pack<T>::kSize* kRowThreads;

template <class T>
struct BackwardInput {
  ClosedPack<T> grad[ColumnPacks<T>::kSlots], x[ColumnPacks<T>::kSlots];
  float mean, rstd;
};

// The sums of two numbers over the threads along x. `scratch` has room for 4 kMostWarps; successive calls alternate
// between its halves, so that one barrier each is enough.
template <class Scratch>
__device__ void reduce_row_sums(float& a, float& b, int half, const Scratch& scratch) {
  a = reduce_warp(a, Sum{});
  b = reduce_warp(b, Sum{});
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  if (warps == 1) return;
  const int first = half * kMostWarps + static_cast<int>(threadIdx.y) * warps;
  if (threadIdx.x % kWarp == 0) {
    const int own = 2 * (first + static_cast<int>(threadIdx.x) / kWarp);
    scratch[own] = a;
    scratch[own + 1] = b;
  }
  __syncthreads();
  a = b = 0;
  for (int warp = first; warp < first + warps; ++warp) {
    a += scratch[2 * warp];
    b += scratch[2 * warp + 1];
  }
}

// Sums of columns held by threads of several rows, brought together in the order of threadIdx.y and stored by the last.
template <class T, class Shared>
__device__ void store_column_sums(const ColumnPacks<T>& packs, float (&sums)[ColumnPacks<T>::kSlots][Pack<T>::kSize],
                                  const Shared& shared, float* to) {
  constexpr int kSize = Pack<T>::kSize;
  for (unsigned y = 0; y < blockDim.y; ++y) {
    if (threadIdx.y == y)
      packs.each([&](int slot, std::int64_t begin, auto) {
        for (int i = 0; i < kSize; ++i) {
          const unsigned at = (slot * kSize + i) * blockDim.x + threadIdx.x;
          if (y > 0) sums[slot][i] = static_cast<float>(shared[at]) + sums[slot][i];
          if (y + 1 < blockDim.y) shared[at] = sums[slot][i];
        }
        if (y + 1 == blockDim.y)
          for (int i = 0; i < kSize; ++i) to[begin + i] = sums[slot][i];
      });
    __syncthreads();
  }
}

// A block for each chunk; threads along x share a row, and hold their part of it and of the column sums in registers.
// The next row is on its way while one is computed.
template <class T>
__global__ void __launch_bounds__(kRowThreads) norm_backward_kernel(NormBackwardRows<T> args) {
  constexpr int kSize = Pack<T>::kSize, kSlots = ColumnPacks<T>::kSlots;
  KEEL_SHARED(float, scratch, 4 * kMostWarps);
  const ColumnPacks<T> packs(args.x, args.cols, true);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * args.chunk;
  const std::int64_t end = first + args.chunk < args.rows ? first + args.chunk : args.rows;

  ClosedPack<T> weight[kSlots];
  packs.each([&](int slot, std::int64_t begin, auto) { weight[slot] = load_closed(args.weight + begin); });
  float weight_sums[kSlots][kSize] = {}, bias_sums[kSlots][kSize] = {};
  const auto load = [&](std::int64_t row, BackwardInput<T>& input) {
    if (row >= end) return;
    packs.each([&](int slot, std::int64_t begin, auto) {
      input.grad[slot] = load_closed<Cache::stream>(args.grad_output + row * args.cols + begin);
      input.x[slot] = load_closed<Cache::stream>(args.x + row * args.cols + begin);
    });
    input.mean = args.mean == nullptr ? 0.0f : args.mean[row];
    input.rstd = args.rstd[row];
  };

  BackwardInput<T> next{};
  load(first + threadIdx.y, next);
  int half = 0;
  for (std::int64_t together = first; together < end; together += blockDim.y, half ^= 1) {
    const std::int64_t row = together + threadIdx.y, at = row * args.cols;
    const BackwardInput<T> input = next;
    load(row + blockDim.y, next);
    ClosedPack<T> grad_sum[kSlots];
    if (row < end && args.grad_sum != nullptr)
      packs.each([&](int slot, std::int64_t begin, auto) {
        grad_sum[slot] = load_closed<Cache::stream>(args.grad_sum + at + begin);
      });

    float sum = 0, dot = 0, grad[kSize], x[kSize], w[kSize];
    if (row < end)
      packs.each([&](int slot, std::int64_t, auto) {
        input.grad[slot].open(grad);
        input.x[slot].open(x);
        weight[slot].open(w);
        for (int i = 0; i < kSize; ++i) {
          const float distance = x[i] - input.mean, g = grad[i] * w[i];
          weight_sums[slot][i] = math::fma(grad[i], distance * input.rstd, weight_sums[slot][i]);
          bias_sums[slot][i] += grad[i];
          sum += g;
          dot = math::fma(g, distance, dot);
        }
      });
    reduce_row_sums(sum, dot, half, scratch);
    if (row >= end) continue;
    const RowSlope slope(args, input.mean, input.rstd, sum, dot);
    packs.each([&](int slot, std::int64_t begin, auto) {
      input.grad[slot].open(grad);
      input.x[slot].open(x);
      weight[slot].open(w);
      for (int i = 0; i < kSize; ++i) grad[i] = slope(grad[i] * w[i], x[i]);
      if (args.grad_sum != nullptr) {
        grad_sum[slot].open(x);
        for (int i = 0; i < kSize; ++i) grad[i] += x[i];
      }
      store_values(args.grad_x + at + begin, grad);
    });
  }

  const auto shared = dynamic_span<float>();
  const std::int64_t sums_at = static_cast<std::int64_t>(blockIdx.x) * args.cols;
  if (args.weight_sums != nullptr) store_column_sums<T>(packs, weight_sums, shared, args.weight_sums + sums_at);
  if (args.bias_sums != nullptr) store_column_sums<T>(packs, bias_sums, shared, args.bias_sums + sums_at);
}

// Rows that are too long for the above, or do not consist of whole packs: grad_x by a warp or block for each row, which
// reads it twice ...
template <class T>
__global__ void __launch_bounds__(kRowThreads) norm_backward_any_kernel(NormBackwardRows<T> args) {
  KEEL_SHARED(float, scratch, kWarp);
  const std::int64_t row = row_of_thread();
  if (row >= args.rows) return;  // the whole warp
  const std::int64_t at = row * args.cols;
  const AnyRow<T> parts(args.x + at, args.cols, args.vector);
  const float mean = args.mean == nullptr ? 0.0f : args.mean[row], rstd = args.rstd[row];
  // grad: times the weight.
  const auto read = [&](std::int64_t begin, auto& grad, auto& x) {
    constexpr int kCount = std::extent_v<std::remove_reference_t<decltype(x)>>;
    load_values(args.weight + begin, x, args.vector_columns);
    load_values(args.grad_output + at + begin, grad);
    for (int i = 0; i < kCount; ++i) grad[i] *= x[i];
    load_values(args.x + at + begin, x);
  };

  float sum = 0, dot = 0;
  parts.each([&](int, std::int64_t begin, auto count) {
    float grad[count()], x[count()];
    read(begin, grad, x);
    for (int i = 0; i < count(); ++i) {
      sum += grad[i];
      dot = math::fma(grad[i], x[i] - mean, dot);
    }
  });
  sum = reduce_block(sum, 0.0f, Sum{}, scratch);
  dot = reduce_block(dot, 0.0f, Sum{}, scratch);
  const RowSlope slope(args, mean, rstd, sum, dot);
  parts.each([&](int, std::int64_t begin, auto count) {
    float grad[count()], x[count()];
    read(begin, grad, x);
    for (int i = 0; i < count(); ++i) grad[i] = slope(grad[i], x[i]);
    if (args.grad_sum != nullptr) {
      load_values(args.grad_sum + at + begin, x);
      for (int i = 0; i < count(); ++i) grad[i] += x[i];
    }
    store_values(args.grad_x + at + begin, grad);
  });
}

// ... and the column sums of a chunk of rows by a thread for each column. Grid: column blocks times chunks.
constexpr int kColumnThreads = 128;
template <class T>
__global__ void __launch_bounds__(kColumnThreads)
    norm_columns_kernel(NormBackwardRows<T> args, std::int64_t column_blocks) {
  const std::int64_t chunk = blockIdx.x / column_blocks;
  const std::int64_t column = (blockIdx.x - chunk * column_blocks) * blockDim.x + threadIdx.x;
  if (column >= args.cols) return;
  const std::int64_t first = chunk * args.chunk;
  const std::int64_t end = first + args.chunk < args.rows ? first + args.chunk : args.rows;
  float weight_sum = 0, bias_sum = 0;
#pragma unroll 4
  for (std::int64_t row = first; row < end; ++row) {
    const float grad = widen(args.grad_output[row * args.cols + column]);
    const float distance = widen(args.x[row * args.cols + column]) - (args.mean == nullptr ? 0.0f : args.mean[row]);
    weight_sum = math::fma(grad, distance * args.rstd[row], weight_sum);
    bias_sum += grad;
  }
  if (args.weight_sums != nullptr) args.weight_sums[chunk * args.cols + column] = weight_sum;
  if (args.bias_sums != nullptr) args.bias_sums[chunk * args.cols + column] = bias_sum;
}

// Where a parameter's gradient goes, and the sums that it is made of.
struct Destination {
  const float* sums;  // (chunks, cols)
  void* to;           // (cols)
  DType dtype;
  bool add;  // to what it holds
};

// Element `at` of f32, bf16 or f16.
__device__ float load_as(DType dtype, const void* from, std::int64_t at) {
  if (dtype == DType::bf16) return widen(static_cast<const bf16*>(from)[at]);
  if (dtype == DType::f16) return widen(static_cast<const f16*>(from)[at]);
  return static_cast<const float*>(from)[at];
}
__device__ void store_as(DType dtype, void* to, std::int64_t at, float value) {
  if (dtype == DType::bf16) static_cast<bf16*>(to)[at] = bf16(value);
  else if (dtype == DType::f16) static_cast<f16*>(to)[at] = f16(value);
  else static_cast<float*>(to)[at] = value;
}

// A warp's lanes have neighbouring columns, and the warps of a block share the chunks: warp y adds y, y + kSumWarps,
// ... in order, then the sums of the warps are added in order. Grid: column blocks times destinations.
constexpr int kSumWarps = 16;
__global__ void __launch_bounds__(kSumWarps* kWarp)
    add_chunks_kernel(Destination first, Destination second, std::int64_t chunks, std::int64_t cols) {
  KEEL_SHARED(float, partial, kSumWarps* kWarp);
  const Destination destination = blockIdx.y == 0 ? first : second;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0;
  if (column < cols)
    for (std::int64_t chunk = threadIdx.y; chunk < chunks; chunk += kSumWarps)
      sum += destination.sums[chunk * cols + column];
  partial[threadIdx.y * kWarp + threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= cols) return;
  float total = destination.add ? load_as(destination.dtype, destination.to, column) : 0.0f;
  for (int warp = 0; warp < kSumWarps; ++warp) total += partial[warp * kWarp + threadIdx.x];
  store_as(destination.dtype, destination.to, column, total);
}

// Rows of a chunk: few enough to keep a large GPU busy, and so many that the chunks' sums are small beside the rows.
std::int64_t rows_of_chunk(std::int64_t rows) {
  constexpr std::int64_t kStep = 8;  // no block works on more rows at once
  const std::int64_t some = std::clamp<std::int64_t>(ceil_div(rows, 256), kStep, 4 * kStep);
  return ceil_div(std::max(some, ceil_div(rows, 1024)), kStep) * kStep;
}

template <class T>
void launch_rows(const char* name, const NormBackwardRows<T>& rows, cudaStream_t stream) {
  constexpr int kSize = Pack<T>::kSize, kSlots = ColumnPacks<T>::kSlots;
  const std::int64_t chunks = ceil_div(rows.rows, rows.chunk);
  if (can_hold(rows.x, rows.cols, rows.vector) && rows.vector_columns && rows.cols <= kHeldColumns<T>) {
    const std::int64_t threads = ceil_div(rows.cols, kSize * kSlots * kWarp) * kWarp;
    const std::int64_t together = std::clamp<std::int64_t>(256 / threads, 1, 8);
    const std::size_t bytes = together == 1 ? 0 : static_cast<std::size_t>(threads) * kSize * kSlots * sizeof(float);
    launch(
        name, norm_backward_kernel<T>,
        {static_cast<unsigned>(chunks), dim3(static_cast<unsigned>(threads), static_cast<unsigned>(together)), bytes},
        stream, rows);
    return;
  }
  // The column sums first: grad_x may go where the inputs were.
  if (rows.weight_sums != nullptr || rows.bias_sums != nullptr) {
    const std::int64_t column_blocks = ceil_div(rows.cols, kColumnThreads);
    launch(name, norm_columns_kernel<T>, {static_cast<unsigned>(column_blocks * chunks), kColumnThreads}, stream, rows,
           column_blocks);
  }
  const RowLaunch shape = launch_of_rows(rows.rows, rows.cols);
  launch(name, norm_backward_any_kernel<T>, {shape.grid, shape.block}, stream, rows);
}

template <class T>
void norm_backward_as(const char* name, const NormBackwardArgs& args) {
  const Context& context = args.x.context();
  const cudaStream_t stream = stream_of(args.x);
  const auto data = [](const Tensor& tensor) { return tensor.defined() ? tensor.data<T>() : nullptr; };
  NormBackwardRows<T> rows{};
  rows.grad_output = data(args.grad_output);
  rows.grad_sum = data(args.grad_sum);
  rows.x = data(args.x);
  rows.weight = data(args.weight);
  rows.mean = args.kind == NormKind::layer ? args.mean.data<float>() : nullptr;
  rows.rstd = args.rstd.data<float>();
  rows.grad_x = data(args.grad_x);
  rows.rows = args.x.dim(0);
  rows.cols = args.x.dim(1);
  rows.chunk = rows_of_chunk(rows.rows);
  rows.vector = in_phase({&args.grad_output, &args.grad_sum, &args.x, &args.grad_x});
  rows.vector_columns = packs_fit(rows.x, rows.cols) && packs_fit(rows.weight, rows.cols);
  if (rows.cols == 0) return;

  const std::int64_t chunks = ceil_div(rows.rows, rows.chunk);
  Destination destinations[2] = {};
  Tensor sums[2];
  unsigned count = 0;
  const auto add_destination = [&](const Tensor& to, bool add) -> float* {
    if (!to.defined()) return nullptr;
    sums[count] = empty(context, {chunks, rows.cols}, DType::f32, Purpose::workspace);
    float* const partial = sums[count].template data<float>();
    destinations[count++] = {partial, to.raw(), to.dtype(), add};
    return partial;
  };
  rows.weight_sums = add_destination(args.grad_weight, args.add_weight);
  rows.bias_sums = add_destination(args.grad_bias, args.add_bias);
  if (rows.rows != 0) launch_rows(name, rows, stream);
  if (count != 0)
    launch(name, add_chunks_kernel,
           {dim3(static_cast<unsigned>(ceil_div(rows.cols, kWarp)), count), dim3(kWarp, kSumWarps)}, stream,
           destinations[0], destinations[1], chunks, rows.cols);
}

void norm_backward(const NormBackwardArgs& args) {
  const char* const name = args.kind == NormKind::layer ? "layer_norm_backward" : "rms_norm_backward";
  visit_kernel_type(name, args.x.dtype(), args.x.device(),
                    [&](auto tag) { norm_backward_as<typename decltype(tag)::type>(name, args); });
}

}  // namespace

void add_norm_backward(KernelTable& table) { table.norm_backward = norm_backward; }

}  // namespace keel::cuda
