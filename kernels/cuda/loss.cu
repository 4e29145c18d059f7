// Softmax cross-entropy: loss, and gradient over the logits, of a row by one block. The logits are read from memory
// once and written once; where a row does not fit in shared memory, its second reading comes from the cache.

#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/softmax_row.h"

namespace keel::cuda {
namespace {

struct Targets {
  const void* data;  // i32 or i64 (rows)
  bool wide;         // i64
  std::int64_t rows, classes, ignore_index;

  __device__ std::int64_t at(std::int64_t row) const {
    return wide ? static_cast<const std::int64_t*>(data)[row] : static_cast<const std::int32_t*>(data)[row];
  }
  __device__ bool is_class(std::int64_t target) const { return target >= 0 && target < classes; }
  __device__ bool counts(std::int64_t target) const { return target != ignore_index && is_class(target); }
};

template <class T>
struct CrossEntropyRows {
  const T* logits;  // (rows, classes)
  T* grad;          // null, or (rows, classes); may be the logits
  float* losses;    // (rows)
  Targets targets;
  float smoothing;
  bool vector, staged;
  Fault* fault;
};

// With targets q = (1 - smoothing) onehot(target) + smoothing / classes the loss of a row is sum_j q_j (lse - x_j), and
// its gradient softmax(x) - q.
template <class T>
__global__ void __launch_bounds__(kRowThreads, 2) cross_entropy_kernel(CrossEntropyRows<T> args) {
  KEEL_SHARED(float, scratch, kWarp);
  const Targets& targets = args.targets;
  // What was computed last, at the end of the logits, may still be in the cache.
  const std::int64_t row = targets.rows - 1 - static_cast<std::int64_t>(blockIdx.x), classes = targets.classes;
  const T* const logits = args.logits + row * classes;
  T* const grad = args.grad == nullptr ? nullptr : args.grad + row * classes;
  const std::int64_t target = targets.at(row);

  if (!targets.counts(target)) {  // the whole block
    if (threadIdx.x == 0) {
      args.losses[row] = 0;
      if (target != targets.ignore_index) raise_fault(args.fault, FaultKind::target, row, target, classes);
    }
    if (grad == nullptr) return;
    AnyRow<T>(grad, classes, args.vector).each([&](int, std::int64_t begin, auto count) {
      const float zeros[count()] = {};
      store_values(grad + begin, zeros);
    });
    return;
  }

  const float at_target = widen(logits[target]), count = static_cast<float>(classes);
  const StagedRow<T> staged(logits, classes, args.vector, args.staged);
  float total = 0;  // of the logits, for smoothing
  const Exponentials whole = exponentials(staged, scratch, [&](const auto& values) {
    if (args.smoothing == 0) return;
    for (const float value : values) total += value;
  });
  if (args.smoothing != 0) total = reduce_block(total, 0.0f, Sum{}, scratch);
  if (threadIdx.x == 0) {
    const float lse_above_max = math::log(whole.sum);
    float loss = lse_above_max - (at_target - whole.max);
    if (args.smoothing != 0)
      loss = (1 - args.smoothing) * loss + args.smoothing * (lse_above_max - (total / count - whole.max));
    args.losses[row] = loss;
  }
  if (grad == nullptr) return;

  // The gradient may go over the logits. All threads have looked at the target's logit; other elements are read and
  // written by the same thread.
  __syncthreads();
  const float factor = 1 / whole.sum, uniform = args.smoothing / count, on_target = 1 - args.smoothing;
  staged.again([&](std::int64_t begin, auto& values) {
    constexpr int kCount = std::extent_v<std::remove_reference_t<decltype(values)>>;
    for (float& value : values) value = exp_below<T>(value - whole.max) * factor - uniform;
    const std::int64_t at = target - begin;
    if (at >= 0 && at < kCount)
      for (int i = 0; i < kCount; ++i) values[i] -= i == at ? on_target : 0.0f;
    store_values(grad + begin, values);
  });
}

constexpr int kMeanThreads = 512;

// How many targets count, and the mean of their losses, by one block: each thread sums its rows in order, then the
// block sums the threads by a fixed tree, all in fp64.
__global__ void __launch_bounds__(kMeanThreads)
    mean_loss_kernel(const float* losses, Targets targets, float* loss, std::int64_t* count) {
  KEEL_SHARED(double, sums, kWarp);
  KEEL_SHARED(std::int64_t, counts, kWarp);
  double sum = 0;
  std::int64_t counted = 0;
  for (std::int64_t row = threadIdx.x; row < targets.rows; row += blockDim.x) {
    sum += losses[row];
    counted += targets.counts(targets.at(row));
  }
  sum = reduce_block(sum, 0.0, Sum{}, sums);
  counted = reduce_block(counted, std::int64_t{0}, Sum{}, counts);
  if (threadIdx.x != 0) return;
  *count = counted;
  *loss = counted == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(counted));
}

template <class T>
void launch_rows(const CrossEntropyArgs& args, const Targets& targets) {
  const Tensor& logits = args.logits;
  CrossEntropyRows<T> rows{};
  rows.logits = logits.data<T>();
  rows.grad = args.grad_logits.defined() ? args.grad_logits.data<T>() : nullptr;
  rows.losses = args.losses.data<float>();
  rows.targets = targets;
  rows.smoothing = static_cast<float>(args.label_smoothing);
  rows.vector = in_phase({&logits, &args.grad_logits});
  rows.fault = logits.context().api().fault();
  const cudaStream_t stream = stream_of(logits);
  const std::size_t bytes = rows.grad == nullptr ? 0 : StagedRow<T>::bytes(targets.classes);
  rows.staged = bytes != 0;
  launch("cross_entropy", cross_entropy_kernel<T>,
         {grid_of(targets.rows), StagedRow<T>::threads(targets.classes), bytes}, stream, rows);
}

void cross_entropy(const CrossEntropyArgs& args) {
  visit_kernel_type("cross_entropy", args.logits.dtype(), args.logits.device(), [&](auto tag) {
    const DType index = args.targets.dtype();
    KEEL_CHECK(index == DType::i32 || index == DType::i64, "an index dtype (i32, i64) is needed, got ", index);
    const Targets targets{args.targets.raw(), index == DType::i64, args.logits.dim(0), args.logits.dim(1),
                          args.ignore_index};
    if (targets.rows != 0) launch_rows<typename decltype(tag)::type>(args, targets);
    launch("mean of cross_entropy", mean_loss_kernel, {1, kMeanThreads}, stream_of(args.logits),
           args.losses.data<float>(), targets, args.loss.data<float>(), args.count.data<std::int64_t>());
  });
}

}  // namespace

void add_cross_entropy(KernelTable& table) { table.cross_entropy = cross_entropy; }

}  // namespace keel::cuda
