#include "keel/kernels/norm.h"

#include "keel/kernels/checks.h"
#include "keel/kernels/table.h"

namespace keel::kernels {
namespace {

const char* op_of(NormKind kind) { return kind == NormKind::layer ? "layer_norm" : "rms_norm"; }

DType statistics_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// The shape of one number a row: x's without its last dimension.
Dims row_shape(const Tensor& x) {
  Dims shape = x.shape();
  shape.pop_back();
  return shape;
}

void check_parameter_gradient(const char* op, const char* role, const Tensor& gradient, const Tensor& x) {
  if (!gradient.defined()) return;
  const bool fits = gradient.dtype() == DType::f32 || gradient.dtype() == x.dtype();
  KEEL_CHECK(fits, op, ": ", role, " must have the dtype of x or f32, got ", gradient);
  check_tensor(op, role, gradient, {x.dim(-1)}, gradient.dtype(), x.context());
  check_dense(op, role, gradient);
}

Tensor flat_or_empty(const Tensor& tensor) { return tensor.defined() ? contiguous(tensor).flatten() : tensor; }

}  // namespace

NormResult norm(NormKind kind, const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                double epsilon) {
  const char* const op = op_of(kind);
  check_floating(op, "x", x);
  KEEL_CHECK(x.rank() >= 1, op, ": x needs at least one dimension, got ", x);
  if (residual.defined()) check_tensor(op, "residual", residual, x.shape(), x.dtype(), x.context());
  check_tensor(op, "weight", weight, {x.dim(-1)}, x.dtype(), x.context());
  KEEL_CHECK(kind == NormKind::layer || !bias.defined(), op, ": an RMS norm has no bias, got ", bias);
  if (bias.defined()) check_tensor(op, "bias", bias, {x.dim(-1)}, x.dtype(), x.context());

  const Tensor dense = contiguous(x);
  NormResult result;
  result.out = empty_like(x);
  result.sum = residual.defined() ? empty_like(x) : dense;
  if (kind == NormKind::layer) result.mean = empty(x.context(), row_shape(x), statistics_dtype(x.dtype()));
  result.rstd = empty(x.context(), row_shape(x), statistics_dtype(x.dtype()));

  NormArgs args;
  args.kind = kind;
  args.x = as_rows(op, dense);
  if (residual.defined()) {
    args.residual = as_rows(op, contiguous(residual));
    args.sum = as_rows(op, result.sum);
  }
  args.weight = contiguous(weight);
  if (bias.defined()) args.bias = contiguous(bias);
  args.epsilon = epsilon;
  args.out = as_rows(op, result.out);
  args.mean = flat_or_empty(result.mean);
  args.rstd = flat_or_empty(result.rstd);
  run_kernel(x.context(), op, kernel_table(x.context()).norm, args);
  return result;
}

Tensor norm_backward(NormBackwardArgs args) {
  const char* const op = args.kind == NormKind::layer ? "layer_norm_backward" : "rms_norm_backward";
  const Tensor x = args.x;
  check_floating(op, "x", x);
  KEEL_CHECK(x.rank() >= 1, op, ": x needs at least one dimension, got ", x);
  check_tensor(op, "grad_output", args.grad_output, x.shape(), x.dtype(), x.context());
  if (args.grad_sum.defined()) check_tensor(op, "grad_sum", args.grad_sum, x.shape(), x.dtype(), x.context());
  check_tensor(op, "weight", args.weight, {x.dim(-1)}, x.dtype(), x.context());
  if (args.kind == NormKind::layer)
    check_tensor(op, "mean", args.mean, row_shape(x), statistics_dtype(x.dtype()), x.context());
  check_tensor(op, "rstd", args.rstd, row_shape(x), statistics_dtype(x.dtype()), x.context());
  KEEL_CHECK(args.kind == NormKind::layer || !args.grad_bias.defined(), op, ": an RMS norm has no bias");
  check_parameter_gradient(op, "grad_weight", args.grad_weight, x);
  check_parameter_gradient(op, "grad_bias", args.grad_bias, x);
  if (!args.grad_x.defined()) args.grad_x = empty_like(x);
  check_tensor(op, "grad_x", args.grad_x, x.shape(), x.dtype(), x.context());
  check_dense(op, "grad_x", args.grad_x);

  const Tensor grad_x = args.grad_x;
  args.grad_output = as_rows(op, contiguous(args.grad_output));
  if (args.grad_sum.defined()) args.grad_sum = as_rows(op, contiguous(args.grad_sum));
  args.x = as_rows(op, contiguous(x));
  args.weight = contiguous(args.weight);
  args.mean = flat_or_empty(args.mean);
  args.rstd = flat_or_empty(args.rstd);
  args.grad_x = as_rows(op, grad_x);
  run_kernel(x.context(), op, kernel_table(x.context()).norm_backward, args);
  for (const Tensor& written : {args.grad_x, args.grad_weight, args.grad_bias})
    if (written.defined()) written.mark_written();
  return grad_x;
}

}  // namespace keel::kernels
