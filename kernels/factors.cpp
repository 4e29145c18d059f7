#include "keel/kernels/factors.h"

#include "keel/kernels/checks.h"
#include "keel/kernels/step_state.h"
#include "keel/kernels/table.h"

namespace keel {

Factored Factored::of(const Dims& shape) {
  KEEL_CHECK(shape.size() >= 2, "only tensors of two dimensions or more have rows and columns, got ", shape);
  Factored factored{1, shape[shape.size() - 2], shape[shape.size() - 1]};
  for (int i = 0; i + 2 < shape.size(); ++i) factored.batch *= shape[i];
  return factored;
}

namespace kernels {
namespace {

void check_sums(const char* op, const Tensor& sums, const Factored& shape, const Context& context) {
  check_tensor(op, "sums of rows and columns", sums, {shape.count()}, DType::f64, context);
  check_dense(op, "sums of rows and columns", sums);
}

void check_step(const char* op, const Tensor& step, const Context& context) {
  check_tensor(op, "step state", step, {sizeof(StepState)}, DType::u8, context);
}

void check_span(const char* op, std::int64_t begin, const Tensor& part, const Factored& shape) {
  const std::int64_t all = shape.batch * shape.rows * shape.columns;
  KEEL_CHECK(begin >= 0 && begin + part.numel() <= all, op, ": a part begins at ", begin, " and has ", part.numel(),
             " elements, of the parameter's ", all);
}

}  // namespace

void sum_factors(const Tensor& gradient, std::int64_t begin, const Factored& shape, const Tensor& step,
                 const Tensor& sums) {
  constexpr const char* kOp = "sum_factors";
  check_floating(kOp, "gradient", gradient);
  check_dense(kOp, "gradient", gradient);
  const Context& context = gradient.context();
  check_span(kOp, begin, gradient, shape);
  check_step(kOp, step, context);
  check_sums(kOp, sums, shape, context);
  run_kernel(context, kOp, kernel_table(context).sum_factors, gradient, begin, shape, step, sums);
  sums.mark_written();
}

void settle_factors(const SettleArgs& args) {
  constexpr const char* kOp = "settle_factors";
  check_floating(kOp, "rows", args.rows);
  const Context& context = args.rows.context();
  const DType wide = args.rows.dtype() == DType::f64 ? DType::f64 : DType::f32;
  check_tensor(kOp, "rows", args.rows, {args.shape.batch * args.shape.rows}, wide, context);
  check_tensor(kOp, "columns", args.columns, {args.shape.batch * args.shape.columns}, wide, context);
  for (const Tensor& tensor : {args.rows, args.columns}) check_dense(kOp, "rows and columns", tensor);
  check_step(kOp, args.step, context);
  check_sums(kOp, args.sums, args.shape, context);
  run_kernel(context, kOp, kernel_table(context).settle_factors, args);
  for (const Tensor& tensor : {args.rows, args.columns, args.sums}) tensor.mark_written();
}

void expand_factors(const Tensor& factors, const Factored& shape, std::int64_t begin, const Tensor& root) {
  constexpr const char* kOp = "expand_factors";
  check_defined(kOp, "root", root);
  KEEL_CHECK(root.dtype() == DType::f32 || root.dtype() == DType::f64, kOp, ": root must be f32 or f64, got ", root);
  check_dense(kOp, "root", root);
  check_span(kOp, begin, root, shape);
  check_sums(kOp, factors, shape, root.context());
  run_kernel(root.context(), kOp, kernel_table(root.context()).expand_factors, factors, shape, begin, root);
  root.mark_written();
}

}  // namespace kernels
}  // namespace keel
