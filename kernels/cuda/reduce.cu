// Reductions over any dimensions on a device, in an order that depends on shapes, strides and alignment alone.
//
// Two ways to walk, as on the processor: along the reduced elements of each output (by rows), or across neighbouring
// outputs side by side (by columns), whichever memory is dense in. Long ranges are cut into chunks, whose results a
// second launch reduces in the same way.

#include <algorithm>
#include <limits>

#include "keel/kernels/binary_functors.h"
#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/best.h"
#include "keel/kernels/cuda/operand.h"

namespace keel::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kRowChunk = 8192;  // elements of a block along a row; a multiple of every Pack

template <class T>
using ComputeType = std::conditional_t<std::is_integral_v<T>, std::int64_t, float>;

struct SumOf : Sum {
  template <class C>
  static __device__ C neutral() {
    return C(0);
  }
};
struct MaxOf {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return Maximum{}.forward(a, b);
  }
  template <class C>
  static __device__ C neutral() {
    return Best<C>::none().value;
  }
};
struct MinOf {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return Minimum{}.forward(a, b);
  }
  template <class C>
  static __device__ C neutral() {
    using Limits = std::numeric_limits<C>;
    return Limits::has_infinity ? Limits::infinity() : Limits::max();
  }
};

// Where reduced values go, by the row-major number of the output.
struct Result {
  Operand out;
  std::int64_t divisor = 0;  // of a mean
  bool add = false;

  template <class C>
  __device__ void store(std::int64_t output, C value) const {
    if (divisor != 0) value = value / static_cast<C>(divisor);
    if (add) value = load_element<C>(out, output) + value;
    store_element(out, output, value);
  }
};

// Values that a thread reduced side by side, as one; neighbours first.
template <int kCount, class C, class Op>
__device__ C fold(C (&values)[kCount], Op op) {
#pragma unroll
  for (int step = 1; step < kCount; step *= 2)
#pragma unroll
    for (int i = 0; i + step < kCount; i += 2 * step) values[i] = op(values[i], values[i + step]);
  return values[0];
}

// Rows of x, one for each output, cut into chunks of kRowChunk; `group` threads (1, 32 or kThreads) share a chunk.
struct RowsJob {
  const void* x;
  Strides kept, reduced;
  std::int64_t outputs, count, chunks;
  int group;
  bool dense;  // reduced elements are neighbours

  struct Task {
    std::int64_t number, first, last;  // the chunk's; its elements
    int lane;                          // of the group
    const void* row;
  };
  // The chunk of the running thread. False where there is none.
  template <class T>
  __device__ bool task(Task& task) const {
    const int groups = kThreads / group;
    task.number = static_cast<std::int64_t>(blockIdx.x) * groups + static_cast<int>(threadIdx.x) / group;
    task.lane = static_cast<int>(threadIdx.x) % group;
    if (task.number >= outputs * chunks) return false;
    const std::int64_t output = chunks == 1 ? task.number : task.number / chunks;
    task.first = (task.number - output * chunks) * kRowChunk;
    task.last = std::min(count, task.first + kRowChunk);
    task.row = static_cast<const T*>(x) + kept.offset_of(output);
    return true;
  }
  LaunchShape shape() const { return {static_cast<unsigned>(ceil_div(outputs * chunks, kThreads / group)), kThreads}; }
};

RowsJob rows_job(const void* x, const Layout& kept, const Layout& reduced, std::int64_t outputs, std::int64_t count,
                 std::int64_t chunks) {
  const int group = count <= 16 ? 1 : count <= 1024 ? kWarp : kThreads;
  return {x,
          Strides(kept),
          Strides(reduced),
          outputs,
          count,
          chunks,
          group,
          reduced.shape.size() == 1 && reduced.strides[0] == 1};
}

template <class T, class Op>
__global__ void reduce_rows_kernel(RowsJob job, Result result) {
  using C = ComputeType<T>;
  constexpr int kSize = Pack<T>::kSize;
  constexpr Op op;
  KEEL_SHARED(C, scratch, kWarp);
  RowsJob::Task task;
  if (!job.task<T>(task)) return;  // never in a block that one task fills
  const T* const row = static_cast<const T*>(task.row);
  C values[kSize];
#pragma unroll
  for (int i = 0; i < kSize; ++i) values[i] = Op::template neutral<C>();
  std::int64_t at = task.first;
  if (job.dense && reinterpret_cast<std::uintptr_t>(row) % 16 == 0) {
    const std::int64_t whole = task.last / kSize * kSize;
    for (at += task.lane * kSize; at < whole; at += job.group * kSize) {
      const Pack<T> pack = load_pack(row + at);
#pragma unroll
      for (int i = 0; i < kSize; ++i) values[i] = op(values[i], widen<C>(pack.values[i]));
    }
    at = whole;
  }
  for (at += task.lane; at < task.last; at += job.group)
    values[0] = op(values[0], widen<C>(row[job.reduced.offset_of(at)]));
  C value = fold(values, op);
  if (job.group == kWarp) value = reduce_warp(value, op);
  else if (job.group == kThreads) value = reduce_block(value, Op::template neutral<C>(), op, scratch);
  if (task.lane == 0) result.store(task.number, value);
}

template <class T, class Op>
void reduce_rows(const char* name, const Tensor& x, const Layout& kept, const Layout& reduced, std::int64_t outputs,
                 std::int64_t count, const Result& result) {
  using C = ComputeType<T>;
  const std::int64_t chunks = ceil_div(count, kRowChunk);
  const RowsJob job = rows_job(x.raw(), kept, reduced, outputs, count, chunks);
  if (chunks == 1) return launch(name, reduce_rows_kernel<T, Op>, job.shape(), stream_of(x), job, result);
  const Tensor partial = empty(x.context(), {outputs, chunks}, dtype_of<C>(), Purpose::workspace);
  launch(name, reduce_rows_kernel<T, Op>, job.shape(), stream_of(x), job, Result{Operand(partial)});
  reduce_rows<C, Op>(name, partial, Layout({outputs}, {chunks}), Layout({chunks}, {1}), outputs, chunks, result);
}

// Columns of x: outputs are (outer, columns), neighbours along columns. A thread reduces a pack of them over every
// `rows`-th row of its chunk; a block is `lanes` such threads wide and `rows` high.
struct ColumnsJob {
  const void* x;
  Strides outer, reduced;
  std::int64_t outers, columns, count;
  std::int64_t chunks, chunk;  // how many, and the rows of one
  int lanes, rows;
  bool packs;  // each row begins where a pack may

  std::int64_t tiles(int size) const { return ceil_div(columns, lanes * size); }
};

template <class T, class Op>
__global__ void reduce_columns_kernel(ColumnsJob job, Result result) {
  using C = ComputeType<T>;
  constexpr int kSize = Pack<T>::kSize;
  constexpr Op op;
  KEEL_SHARED(C, partial, kThreads * kSize);  // (kSize, rows, lanes)
  const std::int64_t tiles = ceil_div(job.columns, job.lanes * kSize);
  const std::int64_t line = blockIdx.x / tiles, outer = line / job.chunks, chunk = line - outer * job.chunks;
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y), thread = y * job.lanes + x;
  const std::int64_t column = ((blockIdx.x - line * tiles) * job.lanes + x) * kSize;
  const int own = static_cast<int>(std::clamp<std::int64_t>(job.columns - column, 0, kSize));
  const T* const from = static_cast<const T*>(job.x) + job.outer.offset_of(outer) + column;
  const std::int64_t last = std::min(job.count, (chunk + 1) * job.chunk);
  C values[kSize];
#pragma unroll
  for (int i = 0; i < kSize; ++i) values[i] = Op::template neutral<C>();
  if (job.packs && own == kSize) {
#pragma unroll 4
    for (std::int64_t row = chunk * job.chunk + y; row < last; row += job.rows) {
      const Pack<T> pack = load_pack(from + job.reduced.offset_of(row));
#pragma unroll
      for (int i = 0; i < kSize; ++i) values[i] = op(values[i], widen<C>(pack.values[i]));
    }
  } else {
    for (std::int64_t row = chunk * job.chunk + y; row < last; row += job.rows) {
      const T* const elements = from + job.reduced.offset_of(row);
#pragma unroll
      for (int i = 0; i < kSize; ++i)
        if (i < own) values[i] = op(values[i], widen<C>(elements[i]));
    }
  }
#pragma unroll
  for (int i = 0; i < kSize; ++i) partial[i * kThreads + thread] = values[i];
  __syncthreads();
  for (int half = job.rows / 2; half > 0; half /= 2) {
    if (y < half) {
#pragma unroll
      for (int i = 0; i < kSize; ++i)
        partial[i * kThreads + thread] = op(static_cast<C>(partial[i * kThreads + thread]),
                                            static_cast<C>(partial[i * kThreads + thread + half * job.lanes]));
    }
    __syncthreads();
  }
  if (y == 0)
    for (int i = 0; i < own; ++i)
      result.store(line * job.columns + column + i, static_cast<C>(partial[i * kThreads + thread]));
}

// Chunks enough to fill a large device, of enough rows that their results are few beside x.
void cut_columns(ColumnsJob& job, int size) {
  constexpr std::int64_t kBlocks = 1024, kFewRows = 8;
  const std::int64_t wanted = std::max<std::int64_t>(1, kBlocks / (job.tiles(size) * job.outers));
  job.chunk = std::max(ceil_div(job.count, wanted), job.rows * kFewRows);
  job.chunks = ceil_div(job.count, job.chunk);
}

template <class T, class Op>
void reduce_columns(const char* name, const Tensor& x, const Layout& kept, const Layout& reduced, std::int64_t count,
                    const Result& result, bool second = false) {
  using C = ComputeType<T>;
  constexpr int kSize = Pack<T>::kSize;
  Layout outer = kept;
  outer.shape.pop_back();
  outer.strides.pop_back();
  if (outer.shape.empty()) outer = Layout(Dims{1}, Dims{0});
  ColumnsJob job{x.raw(), Strides(outer), Strides(reduced), product(outer.shape), kept.shape.back(), count, 1, count, 1,
                 0,       false};
  // The few rows of a second launch are shared by narrower, higher blocks.
  const std::int64_t widest = second ? kWarp / 4 : kWarp;
  while (job.lanes < widest && job.lanes * kSize < job.columns) job.lanes *= 2;
  job.rows = kThreads / job.lanes;
  job.packs = reinterpret_cast<std::uintptr_t>(x.raw()) % 16 == 0;
  for (const Dims& strides : {outer.strides, reduced.strides})
    for (const std::int64_t stride : strides) job.packs = job.packs && stride % kSize == 0;
  if (!second) cut_columns(job, kSize);
  const dim3 block(static_cast<unsigned>(job.lanes), static_cast<unsigned>(job.rows));
  const LaunchShape shape{static_cast<unsigned>(job.tiles(kSize) * job.outers * job.chunks), block};
  if (job.chunks == 1) return launch(name, reduce_columns_kernel<T, Op>, shape, stream_of(x), job, result);
  const Tensor partial = empty(x.context(), {job.outers, job.chunks, job.columns}, dtype_of<C>(), Purpose::workspace);
  launch(name, reduce_columns_kernel<T, Op>, shape, stream_of(x), job, Result{Operand(partial)});
  reduce_columns<C, Op>(name, partial, Layout({job.outers, job.columns}, {job.chunks * job.columns, 1}),
                        Layout({job.chunks}, {job.columns}), job.chunks, result, true);
}

template <class T, class Op>
void reduce_as(const char* name, const ReduceArgs& args) {
  const ReductionLayout layout(args.x, args.dims);
  const Result result{Operand(args.out), args.reduction == Reduction::mean ? layout.count : 0, args.add};
  if (layout.by_columns()) {
    reduce_columns<T, Op>(name, args.x, layout.kept, layout.reduced, layout.count, result);
  } else {
    reduce_rows<T, Op>(name, args.x, layout.kept, layout.reduced, layout.outputs, layout.count, result);
  }
}

template <class T>
__global__ void argmax_kernel(RowsJob job, std::int64_t* out) {
  using C = ComputeType<T>;
  KEEL_SHARED(Best<C>, scratch, kWarp);
  RowsJob::Task task;
  if (!job.task<T>(task)) return;
  const T* const row = static_cast<const T*>(task.row);
  Best<C> best = Best<C>::none();
  const auto consider = [&](T value, std::int64_t at) { best = BestOf{}(best, Best<C>{widen<C>(value), at}); };
  std::int64_t packed = 0;  // elements that are read as packs
  if (job.dense && reinterpret_cast<std::uintptr_t>(row) % 16 == 0) {
    constexpr int kSize = Pack<T>::kSize;
    packed = job.count / kSize * kSize;
#pragma unroll 4
    for (std::int64_t at = std::int64_t{task.lane} * kSize; at < packed; at += job.group * kSize) {
      const Pack<T> pack = load_pack(row + at);
#pragma unroll
      for (int i = 0; i < kSize; ++i) consider(pack.values[i], at + i);
    }
  }
  for (std::int64_t at = packed + task.lane; at < job.count; at += job.group)
    consider(row[job.reduced.offset_of(at)], at);
  if (job.group == kWarp) best = reduce_warp(best, BestOf{});
  else if (job.group == kThreads) best = reduce_block(best, Best<C>::none(), BestOf{}, scratch);
  if (task.lane == 0) out[task.number] = best.index;
}

// One chunk for each output, however long.
template <class T>
void argmax_as(const char* name, const ReduceArgs& args) {
  constexpr std::int64_t kManyOutputs = 4096;
  const ReductionLayout layout(args.x, args.dims);
  RowsJob job = rows_job(args.x.raw(), layout.kept, layout.reduced, layout.outputs, layout.count, 1);
  if (layout.by_columns() && layout.outputs >= kManyOutputs) job.group = 1;  // neighbours read neighbours
  launch(name, argmax_kernel<T>, job.shape(), stream_of(args.x), job, args.out.data<std::int64_t>());
}

const char* name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum: return "sum";
    case Reduction::mean: return "mean";
    case Reduction::max: return "max";
    case Reduction::min: return "min";
    case Reduction::argmax: return "argmax";
  }
  return "";
}

void reduce(const ReduceArgs& args) {
  if (args.out.numel() == 0) return;
  const char* const name = name_of(args.reduction);
  for (const Tensor& tensor : {args.x, args.out})
    if (tensor.dtype() == DType::f64) refuse_dtype(name, tensor.dtype(), tensor.device());
  if (args.x.numel() == 0) {
    const double nothing = args.reduction == Reduction::mean ? std::numeric_limits<double>::quiet_NaN() : 0;
    if (!args.add) kernel_table(args.out.context()).fill(args.out, nothing);
    return;
  }
  visit_dtype(args.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, double>) {
      switch (args.reduction) {
        case Reduction::sum:
        case Reduction::mean: return reduce_as<T, SumOf>(name, args);
        case Reduction::max: return reduce_as<T, MaxOf>(name, args);
        case Reduction::min: return reduce_as<T, MinOf>(name, args);
        case Reduction::argmax: return argmax_as<T>(name, args);
      }
    }
  });
}

}  // namespace

void add_reduce(KernelTable& table) { table.reduce = reduce; }

}  // namespace keel::cuda
