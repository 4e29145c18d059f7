// Softmax and log-softmax of rows, and their derivatives. A row is read from memory once where it fits on the SM.

#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/softmax_row.h"

namespace keel::cuda {
namespace {

template <class T>
struct SoftmaxRows {
  const T* x;  // (rows, cols)
  T* out;      // (rows, cols)
  std::int64_t rows, cols;
  bool log, vector;
};

// A row in the registers of a warp or a block.
template <class T>
__global__ void __launch_bounds__(kRowThreads) softmax_held_kernel(SoftmaxRows<T> args) {
  constexpr int kSize = Held<T>::kSize, kSlots = Held<T>::kSlots;
  KEEL_SHARED(float, scratch, kWarp);
  const std::int64_t row = row_of_thread();
  if (row >= args.rows) return;  // the whole warp
  const T* const x = args.x + row * args.cols;
  T* const out = args.out + row * args.cols;
  const Held<T> held(x, args.cols, args.vector);

  ClosedPack<T> packs[kSlots];
  held.each([&](int slot, std::int64_t begin, auto) { packs[slot] = load_closed<Cache::stream>(x + begin); });
  float values[kSlots][kSize], max = -INFINITY;
  held.each([&](int slot, std::int64_t, auto) {
    packs[slot].open(values[slot]);
    for (const float value : values[slot]) max = fmaxf(max, value);  // NaN is passed over, and met in the sum
  });
  max = reduce_block(max, -INFINITY, Largest{}, scratch);
  float sum = 0;
  held.each([&](int slot, std::int64_t, auto) {
    for (float& value : values[slot]) {
      const float distance = value - max, power = exp_below<T>(distance);
      sum += power;
      value = args.log ? distance : power;
    }
  });
  sum = reduce_block(sum, 0.0f, Sum{}, scratch);
  const float scale = args.log ? 1.0f : 1 / sum, offset = args.log ? math::log(sum) : 0.0f;
  held.each([&](int slot, std::int64_t begin, auto) {
    for (float& value : values[slot]) value = value * scale - offset;
    store_values(out + begin, values[slot]);
  });
}

// A block for each row, which it reads twice.
template <class T>
__global__ void __launch_bounds__(kRowThreads, 2) softmax_kernel(SoftmaxRows<T> args, bool staged) {
  KEEL_SHARED(float, scratch, kWarp);
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * args.cols;
  const StagedRow<T> row(args.x + at, args.cols, args.vector, staged);
  const Exponentials whole = exponentials(row, scratch, [](const auto&) {});
  const float scale = 1 / whole.sum, offset = math::log(whole.sum);
  row.again([&](std::int64_t begin, auto& values) {
    for (float& value : values) {
      const float distance = value - whole.max;
      value = args.log ? distance - offset : exp_below<T>(distance) * scale;
    }
    store_values(args.out + at + begin, values);
  });
}

template <class T>
void launch_softmax(const SoftmaxArgs& args) {
  const std::int64_t rows = args.x.dim(0), cols = args.x.dim(1);
  const bool vector = in_phase({&args.x, &args.out});
  const cudaStream_t stream = stream_of(args.x);
  const SoftmaxRows<T> params{args.x.data<T>(), args.out.data<T>(), rows, cols, args.log, vector};
  if (can_hold(params.x, cols, vector)) {
    const RowLaunch shape = launch_of_rows(rows, cols);
    launch("softmax", softmax_held_kernel<T>, {shape.grid, shape.block}, stream, params);
  } else {
    const std::size_t bytes = StagedRow<T>::bytes(cols);
    launch("softmax", softmax_kernel<T>, {grid_of(rows), StagedRow<T>::threads(cols), bytes}, stream, params,
           bytes != 0);
  }
}

template <class T>
struct SoftmaxBackwardRows {
  const T *grad_output, *out;  // (rows, cols)
  T* grad_input;               // (rows, cols)
  std::int64_t rows, cols;
  bool log, vector;
};

// softmax: y (g - sum(g y)); log-softmax: g - exp(y) sum(g). Row is Held, or AnyRow, which reads twice.
template <class T, class Row>
__global__ void __launch_bounds__(kRowThreads) softmax_backward_kernel(SoftmaxBackwardRows<T> args) {
  constexpr bool kHeld = std::is_same_v<Row, Held<T>>;
  KEEL_SHARED(float, scratch, kWarp);
  const std::int64_t row = row_of_thread();
  if (row >= args.rows) return;  // the whole warp
  const T* const grad_output = args.grad_output + row * args.cols;
  const T* const out = args.out + row * args.cols;
  T* const grad_input = args.grad_input + row * args.cols;
  const Row parts(out, args.cols, args.vector);

  ClosedPack<T> grads[Row::kSlots], kept[Row::kSlots];
  if constexpr (kHeld)
    parts.each([&](int slot, std::int64_t begin, auto) {
      grads[slot] = load_closed<Cache::stream>(grad_output + begin);
      kept[slot] = load_closed<Cache::stream>(out + begin);
    });
  const auto read = [&](int slot, std::int64_t begin, auto& g, auto& y) {
    if constexpr (kHeld) {
      grads[slot].open(g);
      kept[slot].open(y);
    } else {
      load_values(grad_output + begin, g);
      load_values(out + begin, y);
    }
  };

  float sum = 0;
  parts.each([&](int slot, std::int64_t begin, auto count) {
    float g[count()], y[count()];
    read(slot, begin, g, y);
    for (int i = 0; i < count(); ++i) sum = args.log ? sum + g[i] : math::fma(g[i], y[i], sum);
  });
  sum = reduce_block(sum, 0.0f, Sum{}, scratch);
  parts.each([&](int slot, std::int64_t begin, auto count) {
    float g[count()], y[count()];
    read(slot, begin, g, y);
    for (int i = 0; i < count(); ++i) g[i] = args.log ? g[i] - exp_below<T>(y[i]) * sum : y[i] * (g[i] - sum);
    store_values(grad_input + begin, g);
  });
}

template <class T>
void launch_softmax_backward(const SoftmaxBackwardArgs& args) {
  const std::int64_t rows = args.out.dim(0), cols = args.out.dim(1);
  const bool vector = in_phase({&args.grad_output, &args.out, &args.grad_input});
  const SoftmaxBackwardRows<T> params{
      args.grad_output.data<T>(), args.out.data<T>(), args.grad_input.data<T>(), rows, cols, args.log, vector};
  const RowLaunch shape = launch_of_rows(rows, cols);
  const auto kernel =
      can_hold(params.out, cols, vector) ? softmax_backward_kernel<T, Held<T>> : softmax_backward_kernel<T, AnyRow<T>>;
  launch("softmax_backward", kernel, {shape.grid, shape.block}, stream_of(args.out), params);
}

void softmax(const SoftmaxArgs& args) {
  visit_kernel_type(args.log ? "log_softmax" : "softmax", args.x.dtype(), args.x.device(), [&](auto tag) {
    if (args.x.numel() != 0) launch_softmax<typename decltype(tag)::type>(args);
  });
}

void softmax_backward(const SoftmaxBackwardArgs& args) {
  const char* const name = args.log ? "log_softmax_backward" : "softmax_backward";
  visit_kernel_type(name, args.out.dtype(), args.out.device(), [&](auto tag) {
    if (args.out.numel() != 0) launch_softmax_backward<typename decltype(tag)::type>(args);
  });
}

}  // namespace

void add_softmax(KernelTable& table) {
  table.softmax = softmax;
  table.softmax_backward = softmax_backward;
}

}  // namespace keel::cuda
