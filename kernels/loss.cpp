#include "keel/kernels/loss.h"

#include "keel/kernels/checks.h"
#include "keel/kernels/table.h"

namespace keel::kernels {
namespace {

constexpr const char* kOp = "cross_entropy";

// How many targets count; throws at the first that is neither a class nor the ignore index.
std::int64_t count_targets(const Tensor& targets, std::int64_t classes, std::int64_t ignore_index) {
  return visit_index(targets.dtype(), [&](auto tag) {
    using Index = typename decltype(tag)::type;
    std::int64_t count = 0, row = 0;
    for (const Index target : targets.to_vector<Index>()) {
      const bool counts = target != ignore_index;
      KEEL_CHECK(!counts || (target >= 0 && target < classes), kOp, ": target ", target, " of row ", row,
                 " is neither a class in [0, ", classes, ") nor the ignore index ", ignore_index);
      count += counts;
      ++row;
    }
    return count;
  });
}

// The mean over `count` rows, summed in row order.
Tensor mean_loss(const Tensor& losses, std::int64_t count) {
  return visit_floating(losses.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    double total = 0;
    for (const T value : losses.to_vector<T>()) total += static_cast<Accumulator<T>>(value);
    const double mean = count == 0 ? 0 : total / static_cast<double>(count);
    return from_values(losses.context(), std::vector<T>{static_cast<T>(mean)}, {});
  });
}

}  // namespace

CrossEntropyResult cross_entropy(const Tensor& logits, const Tensor& targets, std::int64_t ignore_index,
                                 double label_smoothing, LogitsGradient gradient) {
  check_floating(kOp, "logits", logits);
  check_context(kOp, "targets", targets, logits.context());
  KEEL_CHECK(logits.rank() == 2, kOp, ": logits must be (rows, classes), got ", logits);
  KEEL_CHECK(targets.shape() == Dims{logits.dim(0)}, kOp, ": targets must be (", logits.dim(0), "), got ", targets);
  KEEL_CHECK(label_smoothing >= 0 && label_smoothing <= 1, kOp, ": label_smoothing must be in [0, 1], got ",
             label_smoothing);
  if (gradient == LogitsGradient::over_logits) check_dense(kOp, "logits", logits);

  CrossEntropyResult result;
  result.count = count_targets(targets, logits.dim(1), ignore_index);
  CrossEntropyArgs args;
  args.logits = contiguous(logits);
  args.targets = contiguous(targets);
  args.ignore_index = ignore_index;
  args.label_smoothing = label_smoothing;
  args.losses = empty(logits.context(), targets.shape(), logits.dtype() == DType::f64 ? DType::f64 : DType::f32);
  if (gradient == LogitsGradient::fresh) args.grad_logits = empty_like(logits);
  if (gradient == LogitsGradient::over_logits) args.grad_logits = logits;
  args.grad_scale = result.count == 0 ? 0 : 1 / static_cast<double>(result.count);
  run_kernel(logits.context(), kOp, kernel_table(logits.context()).cross_entropy, args);
  if (gradient == LogitsGradient::over_logits) logits.mark_written();
  result.grad_logits = args.grad_logits;
  result.losses = args.losses;
  result.loss = mean_loss(args.losses, result.count);
  return result;
}

}  // namespace keel::kernels
