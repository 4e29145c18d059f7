#include "keel/kernels/loss.h"

#include "keel/kernels/checks.h"
#include "keel/kernels/table.h"

namespace keel::kernels {
namespace {

constexpr const char* kOp = "cross_entropy";

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

  CrossEntropyArgs args;
  args.logits = contiguous(logits);
  args.targets = contiguous(targets);
  args.ignore_index = ignore_index;
  args.label_smoothing = label_smoothing;
  args.losses = empty(logits.context(), targets.shape(), logits.dtype() == DType::f64 ? DType::f64 : DType::f32);
  if (gradient == LogitsGradient::fresh) args.grad_logits = empty_like(logits);
  if (gradient == LogitsGradient::over_logits) args.grad_logits = logits;
  args.loss = empty(logits.context(), {}, args.losses.dtype());
  args.count = empty(logits.context(), {}, DType::i64);
  run_kernel(logits.context(), kOp, kernel_table(logits.context()).cross_entropy, args);
  if (gradient == LogitsGradient::over_logits) logits.mark_written();
  return {args.loss, args.count, args.losses, args.grad_logits};
}

}  // namespace keel::kernels
