#include "keel/kernels/blocked_loss.h"

#include <vector>

#include "keel/kernels/checks.h"
#include "keel/kernels/table.h"

namespace keel::kernels {
namespace {

constexpr const char* kLossName = "blocked cross_entropy";

LogitsBlockArgs block_of(const BlockedLoss& loss, const Tensor& logits, std::int64_t first_row,
                         std::int64_t first_class) {
  check_floating(kLossName, "logits", logits);
  check_context(kLossName, "logits", logits, loss.state.context());
  check_dense(kLossName, "logits", logits);
  KEEL_CHECK(logits.rank() == 2, kLossName, ": logits must be (rows, block), got ", logits);
  const std::int64_t rows = logits.dim(0), end = first_row + rows;
  KEEL_CHECK(first_row >= 0 && end <= loss.state.dim(0), kLossName, ": rows [", first_row, ", ", end,
             ") are not all among ", loss.state.dim(0));
  KEEL_CHECK(first_class >= 0 && first_class + logits.dim(1) <= loss.classes, kLossName, ": classes [", first_class,
             ", ", first_class + logits.dim(1), ") are not all among ", loss.classes);
  KEEL_CHECK((logits.dtype() == DType::f64) == (loss.state.dtype() == DType::f64), kLossName,
             ": it was started for another dtype than that of the logits ", logits);
  LogitsBlockArgs args;
  args.loss = loss;
  args.loss.targets = loss.targets.slice(0, first_row, end);
  args.loss.state = loss.state.slice(0, first_row, end);
  args.loss.places = Tensor();
  args.logits = logits;
  args.first_class = first_class;
  return args;
}

}  // namespace

Tensor counted_rows(const Tensor& targets, std::int64_t classes, std::int64_t ignore_index) {
  check_defined(kLossName, "targets", targets);
  KEEL_CHECK(targets.rank() == 1, kLossName, ": targets must be (rows), got ", targets);
  KEEL_CHECK(targets.device().type == DeviceType::cpu, kLossName, ": counting the targets ", targets,
             " would wait for their device");
  std::vector<std::int64_t> rows;
  const auto look_at = [&](const auto& values) {
    for (std::size_t row = 0; row < values.size(); ++row) {
      if (values[row] == ignore_index) continue;
      KEEL_CHECK(values[row] >= 0 && values[row] < classes, "cross_entropy: target ", values[row], " of row ", row,
                 " is neither a class in [0, ", classes, ") nor the ignore index ", ignore_index);
      rows.push_back(static_cast<std::int64_t>(row));
    }
  };
  visit_index(targets.dtype(), [&](auto tag) { look_at(targets.to_vector<typename decltype(tag)::type>()); });
  return from_values(targets.context(), rows, {static_cast<std::int64_t>(rows.size())});
}

BlockedLoss start_blocked_loss(const Tensor& targets, std::int64_t classes, DType dtype, std::int64_t ignore_index,
                               double label_smoothing) {
  check_defined(kLossName, "targets", targets);
  KEEL_CHECK(targets.rank() == 1, kLossName, ": targets must be (rows), got ", targets);
  KEEL_CHECK(targets.dtype() == DType::i32 || targets.dtype() == DType::i64, kLossName,
             ": targets must be i32 or i64, got ", targets);
  KEEL_CHECK(is_floating(dtype), kLossName, ": logits must be floating-point, not ", dtype);
  KEEL_CHECK(classes >= 1, kLossName, ": at least one class is needed, got ", classes);
  KEEL_CHECK(label_smoothing >= 0 && label_smoothing <= 1, kLossName, ": label_smoothing must be in [0, 1], got ",
             label_smoothing);
  BlockedLoss loss;
  loss.targets = contiguous(targets);
  loss.state =
      empty(targets.context(), {targets.dim(0), BlockedLoss::kNumbers}, dtype == DType::f64 ? DType::f64 : DType::f32);
  loss.classes = classes;
  loss.ignore_index = ignore_index;
  loss.label_smoothing = label_smoothing;
  return loss;
}

void fold_logits(const BlockedLoss& loss, const Tensor& logits, std::int64_t first_row, std::int64_t first_class) {
  const LogitsBlockArgs args = block_of(loss, logits, first_row, first_class);
  if (logits.numel() == 0) return;
  run_kernel(logits.context(), kLossName, kernel_table(logits.context()).fold_logits, args);
  loss.state.mark_written();
}

SettledLoss settle_loss(const BlockedLoss& loss) {
  const Context& context = loss.state.context();
  SettledLoss settled;
  settled.losses = empty(context, {loss.state.dim(0)}, loss.state.dtype());
  settled.loss = empty(context, {}, loss.state.dtype());
  settled.count = empty(context, {}, DType::i64);
  run_kernel(context, kLossName, kernel_table(context).settle_loss,
             SettleLossArgs{loss, settled.losses, settled.loss, settled.count});
  return settled;
}

void logits_gradient(const BlockedLoss& loss, const Tensor& logits, std::int64_t first_row, std::int64_t first_class,
                     const Tensor& factor, const Tensor& count) {
  LogitsBlockArgs args = block_of(loss, logits, first_row, first_class);
  check_context(kLossName, "factor", factor, logits.context());
  check_tensor(kLossName, "count", count, {}, DType::i64, logits.context());
  KEEL_CHECK(factor.numel() == 1 && factor.dtype() == loss.state.dtype(), kLossName, ": factor must be one ",
             loss.state.dtype(), ", got ", factor);
  if (logits.numel() == 0) return;
  args.factor = factor;
  args.count = count;
  run_kernel(logits.context(), kLossName, kernel_table(logits.context()).logits_gradient, args);
  logits.mark_written();
}

}  // namespace keel::kernels
