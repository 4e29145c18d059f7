// Softmax cross-entropy over blocks of classes: a row of a block of logits by one block of threads, and the mean of all
// rows by one.

#include "keel/kernels/blocked_loss.h"
#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/softmax_row.h"

namespace keel::cuda {
namespace {

// The rows of a loss as kernels see them.
struct LossRows {
  const void* targets;         // i32 or i64 (rows)
  float4* state;               // (rows): shift, sum, logit of the target, sum of logits
  const std::int64_t* places;  // null, or (rows)
  bool wide;                   // targets are i64
  std::int64_t rows, classes, ignore_index;
  float smoothing;

  __device__ std::int64_t target(std::int64_t row) const {
    return wide ? static_cast<const std::int64_t*>(targets)[row] : static_cast<const std::int32_t*>(targets)[row];
  }
  __device__ bool counts(std::int64_t target) const {
    return target != ignore_index && target >= 0 && target < classes;
  }
};

LossRows rows_of(const BlockedLoss& loss) {
  const DType index = loss.targets.dtype();
  return {loss.targets.raw(),
          reinterpret_cast<float4*>(loss.state.data<float>()),
          loss.places.defined() ? loss.places.data<std::int64_t>() : nullptr,
          index == DType::i64,
          loss.state.dim(0),
          loss.classes,
          loss.ignore_index,
          static_cast<float>(loss.label_smoothing)};
}

// A shift of -inf, where all logits are -inf or NaN, is taken as 0: so exponentials are 0 and NaN, as they should be.
__device__ float finite_shift(float shift) { return shift == -INFINITY ? 0.0f : shift; }

template <class T>
struct BlockOfLogits {
  T* logits;  // (rows, block)
  std::int64_t block, first_class;
  bool vector;
};

template <class T>
__global__ void __launch_bounds__(kRowThreads, 2) fold_logits_kernel(BlockOfLogits<T> args, LossRows loss) {
  KEEL_SHARED(float, scratch, kWarp);
  const std::int64_t row = blockIdx.x, target = loss.target(row);
  if (!loss.counts(target)) return;  // the whole block
  const T* const logits = args.logits + row * args.block;
  const StagedRow<T> parts(logits, args.block, args.vector, false);
  float total = 0;
  const Exponentials own = exponentials(parts, scratch, [&](const auto& values) {
    for (const float value : values) total += value;
  });
  if (loss.smoothing != 0 || own.max == -INFINITY) total = reduce_block(total, 0.0f, Sum{}, scratch);
  if (threadIdx.x != 0) return;

  float4 state = args.first_class == 0 ? float4{-INFINITY, 0, 0, 0} : loss.state[row];
  // Without a number above -inf the block's sum is 0, unless there is a NaN, which the total shows.
  const float sum = own.max > -INFINITY ? own.sum : total != total ? NAN : 0.0f;
  const float shift = fmaxf(state.x, own.max), base = finite_shift(shift);
  state.y = state.y * math::exp(state.x - base) + sum * math::exp(own.max - base);
  state.x = shift;
  const std::int64_t at = target - args.first_class;
  if (at >= 0 && at < args.block) state.z = widen(logits[at]);
  state.w += total;  // counts with smoothing alone
  loss.state[row] = state;
}

template <class T>
__global__ void __launch_bounds__(kRowThreads, 2)
    logits_gradient_kernel(BlockOfLogits<T> args, LossRows loss, const float* factor, const std::int64_t* count) {
  const std::int64_t row = blockIdx.x, target = loss.target(row), counted = *count;
  T* const logits = args.logits + row * args.block;
  if (!loss.counts(target) || counted == 0) {  // the whole block
    AnyRow<T>(logits, args.block, args.vector).each([&](int, std::int64_t begin, auto size) {
      const float zeros[size()] = {};
      store_values(logits + begin, zeros);
    });
    return;
  }
  const float4 state = loss.state[row];
  const float shift = finite_shift(state.x), inverse = 1 / state.y;
  const float scale = static_cast<float>(*factor / static_cast<double>(counted));
  const float uniform = loss.smoothing / static_cast<float>(loss.classes), on_target = 1 - loss.smoothing;
  const std::int64_t target_at = target - args.first_class;
  // Each element is read and written by one thread.
  StagedRow<T>(logits, args.block, args.vector, false).again([&](std::int64_t begin, auto& values) {
    constexpr int kCount = std::extent_v<std::remove_reference_t<decltype(values)>>;
    const std::int64_t at = target_at - begin;
    for (int i = 0; i < kCount; ++i) {
      const float probability = exp_below<T>(values[i] - shift) * inverse;
      values[i] = (probability - uniform - (i == at ? on_target : 0.0f)) * scale;
    }
    store_values(logits + begin, values);
  });
}

constexpr int kSettleThreads = 512;

// Losses and their mean by one block: each thread sums its rows in order, then the block sums the threads by a fixed
// tree, all in fp64.
__global__ void __launch_bounds__(kSettleThreads)
    settle_loss_kernel(LossRows loss, float* losses, float* mean, std::int64_t* count, Fault* fault) {
  KEEL_SHARED(double, sums, kWarp);
  KEEL_SHARED(std::int64_t, counts, kWarp);
  double sum = 0;
  std::int64_t counted = 0;
  for (std::int64_t row = threadIdx.x; row < loss.rows; row += blockDim.x) {
    const std::int64_t target = loss.target(row);
    if (!loss.counts(target)) {
      losses[row] = 0;
      if (target != loss.ignore_index)
        raise_fault(fault, FaultKind::target, loss.places == nullptr ? row : loss.places[row], target, loss.classes);
      continue;
    }
    const float4 state = loss.state[row];
    const float lse_above_shift = math::log(state.y);
    float value = lse_above_shift - (state.z - state.x);
    if (loss.smoothing != 0)
      value = (1 - loss.smoothing) * value +
              loss.smoothing * (lse_above_shift - (state.w / static_cast<float>(loss.classes) - state.x));
    losses[row] = value;
    sum += value;
    ++counted;
  }
  sum = reduce_block(sum, 0.0, Sum{}, sums);
  counted = reduce_block(counted, std::int64_t{0}, Sum{}, counts);
  if (threadIdx.x != 0) return;
  *count = counted;
  *mean = counted == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(counted));
}

template <class T>
BlockOfLogits<T> logits_of(const LogitsBlockArgs& args) {
  return {args.logits.data<T>(), args.logits.dim(1), args.first_class, in_phase({&args.logits})};
}

void fold_logits(const LogitsBlockArgs& args) {
  visit_kernel_type("cross_entropy", args.logits.dtype(), args.logits.device(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const LossRows rows = rows_of(args.loss);
    launch("fold_logits", fold_logits_kernel<T>, {grid_of(rows.rows), StagedRow<T>::threads(args.logits.dim(1))},
           stream_of(args.logits), logits_of<T>(args), rows);
  });
}

void logits_gradient(const LogitsBlockArgs& args) {
  visit_kernel_type("cross_entropy", args.logits.dtype(), args.logits.device(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const LossRows rows = rows_of(args.loss);
    launch("logits_gradient", logits_gradient_kernel<T>,
           {grid_of(rows.rows), StagedRow<T>::threads(args.logits.dim(1))}, stream_of(args.logits), logits_of<T>(args),
           rows, args.factor.data<float>(), args.count.data<std::int64_t>());
  });
}

void settle_loss(const SettleLossArgs& args) {
  const Tensor& state = args.loss.state;
  if (state.dtype() != DType::f32) refuse_dtype("cross_entropy", state.dtype(), state.device());
  launch("settle_loss", settle_loss_kernel, {1, kSettleThreads}, stream_of(state), rows_of(args.loss),
         args.losses.data<float>(), args.mean.data<float>(), args.count.data<std::int64_t>(),
         state.context().api().fault());
}

}  // namespace

void add_blocked_loss(KernelTable& table) {
  table.fold_logits = fold_logits;
  table.settle_loss = settle_loss;
  table.logits_gradient = logits_gradient;
}

}  // namespace keel::cuda
