// Layer norm and RMS norm of rows, with the residual addition in front: each number is read once and written once.

#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/rows.h"

namespace keel::cuda {
namespace {

template <class T>
struct NormRows {
  const T *x, *residual;   // (rows, cols); residual may be null
  const T *weight, *bias;  // (cols); bias may be null
  T *sum, *out;            // (rows, cols); sum null without residual
  float *mean, *rstd;      // (rows); mean null for rms
  std::int64_t rows, cols;
  float epsilon;
  bool vector;          // of rows
  bool vector_columns;  // of weight and bias
};

// The variance is summed about the mean, not as a difference of large numbers. Row is Held, or AnyRow, which reads in
// each of three passes.
template <class T, class Row>
__global__ void __launch_bounds__(kRowThreads) norm_kernel(NormRows<T> args) {
  constexpr bool kHeld = std::is_same_v<Row, Held<T>>;
  KEEL_SHARED(float, scratch, kWarp);
  const std::int64_t row = row_of_thread();
  if (row >= args.rows) return;  // the whole warp
  const std::int64_t at = row * args.cols;
  const Row parts(args.x + at, args.cols, args.vector);
  const float cols = static_cast<float>(args.cols);

  ClosedPack<T> x[Row::kSlots], residual[Row::kSlots];
  if constexpr (kHeld) {
    parts.each([&](int slot, std::int64_t begin, auto) {
      x[slot] = load_closed<Cache::stream>(args.x + at + begin);
      if (args.residual != nullptr) residual[slot] = load_closed<Cache::stream>(args.residual + at + begin);
    });
    if (args.residual != nullptr)
      parts.each([&](int slot, std::int64_t begin, auto count) {
        float values[count()], added[count()];
        x[slot].open(values);
        residual[slot].open(added);
        for (int i = 0; i < count(); ++i) values[i] += added[i];
        x[slot] = ClosedPack<T>::close(values);
        store_pack_streaming(args.sum + at + begin, std::bit_cast<Pack<T>>(x[slot]));
      });
  } else if (args.residual != nullptr) {
    parts.each([&](int, std::int64_t begin, auto count) {
      float values[count()], added[count()];
      load_values(args.x + at + begin, values);
      load_values(args.residual + at + begin, added);
      for (int i = 0; i < count(); ++i) values[i] += added[i];
      store_values(args.sum + at + begin, values);
    });
  }
  // What is normalised: x + residual as it was rounded, so that the result has the bits of an addition and a norm.
  const T* const row_begin = (args.residual != nullptr ? args.sum : args.x) + at;
  const auto read = [&](int slot, std::int64_t begin, auto& values) {
    if constexpr (kHeld) x[slot].open(values);
    else load_values(row_begin + begin, values);
  };

  float mean = 0;
  if (args.mean != nullptr) {
    parts.each([&](int slot, std::int64_t begin, auto count) {
      float values[count()];
      read(slot, begin, values);
      for (const float value : values) mean += value;
    });
    mean = reduce_block(mean, 0.0f, Sum{}, scratch) / cols;
  }
  float squares = 0;
  parts.each([&](int slot, std::int64_t begin, auto count) {
    float values[count()];
    read(slot, begin, values);
    for (const float value : values) squares = math::fma(value - mean, value - mean, squares);
  });
  const float rstd = math::rsqrt(reduce_block(squares, 0.0f, Sum{}, scratch) / cols + args.epsilon);
  if (threadIdx.x == 0) {
    if (args.mean != nullptr) args.mean[row] = mean;
    args.rstd[row] = rstd;
  }

  parts.each([&](int slot, std::int64_t begin, auto count) {
    float values[count()], column[count()];
    read(slot, begin, values);
    load_values(args.weight + begin, column, kHeld || args.vector_columns);
    for (int i = 0; i < count(); ++i) values[i] = (values[i] - mean) * rstd * column[i];
    if (args.bias != nullptr) {
      load_values(args.bias + begin, column, kHeld || args.vector_columns);
      for (int i = 0; i < count(); ++i) values[i] += column[i];
    }
    store_values(args.out + at + begin, values);
  });
}

void norm(const NormArgs& args) {
  const char* const name = args.kind == NormKind::layer ? "layer_norm" : "rms_norm";
  visit_kernel_type(name, args.x.dtype(), args.x.device(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (args.x.dim(0) == 0) return;
    const auto data = [](const Tensor& tensor) { return tensor.defined() ? tensor.data<T>() : nullptr; };
    NormRows<T> rows{};
    rows.x = data(args.x);
    rows.residual = data(args.residual);
    rows.weight = data(args.weight);
    rows.bias = data(args.bias);
    rows.sum = data(args.sum);
    rows.out = data(args.out);
    rows.mean = args.kind == NormKind::layer ? args.mean.data<float>() : nullptr;
    rows.rstd = args.rstd.data<float>();
    rows.rows = args.x.dim(0);
    rows.cols = args.x.dim(1);
    rows.epsilon = static_cast<float>(args.epsilon);
    rows.vector = in_phase({&args.x, &args.residual, &args.sum, &args.out});
    // Packs of a row are packs of the columns where each row begins with a whole one.
    rows.vector_columns =
        packs_fit(rows.x, rows.cols) && packs_fit(rows.weight, rows.cols) && packs_fit(rows.bias, rows.cols);
    const bool held = can_hold(rows.x, rows.cols, rows.vector) && rows.vector_columns;
    const RowLaunch shape = launch_of_rows(rows.rows, rows.cols);
    launch(name, held ? norm_kernel<T, Held<T>> : norm_kernel<T, AnyRow<T>>, {shape.grid, shape.block},
           stream_of(args.x), rows);
  });
}

}  // namespace

void add_norm(KernelTable& table) { table.norm = norm; }

}  // namespace keel::cuda
