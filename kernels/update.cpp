#include "keel/kernels/update.h"

#include "keel/kernels/checks.h"
#include "keel/kernels/table.h"

namespace keel::kernels {
namespace {

// A dense tensor with as many elements as the parameter, in its context.
void check_flat(const char* op, const char* role, const Tensor& tensor, const Tensor& parameter, DType dtype) {
  check_context(op, role, tensor, parameter.context());
  KEEL_CHECK(tensor.numel() == parameter.numel() && tensor.dtype() == dtype, op, ": ", role, " must be ", dtype,
             " with the ", parameter.numel(), " elements of the parameter, got ", tensor);
  check_dense(op, role, tensor);
}

// What AdamW and SGD ask alike. Returns the dtype of the optimizer's state.
template <class Args>
DType check_update(const char* op, const Args& args) {
  const Tensor& parameter = args.parameter;
  check_floating(op, "parameter", parameter);
  check_dense(op, "parameter", parameter);
  const DType wide = parameter.dtype() == DType::f64 ? DType::f64 : DType::f32;
  if (parameter.dtype() == wide)
    KEEL_CHECK(!args.master.defined(), op, ": a parameter in ", wide,
               " is its own master copy, but one was given: ", args.master);
  else check_flat(op, "master", args.master, parameter, wide);
  check_defined(op, "gradient", args.gradient);
  check_flat(op, "gradient", args.gradient, parameter,
             args.gradient.dtype() == DType::f32 ? DType::f32 : parameter.dtype());
  KEEL_CHECK(args.step >= 1, op, ": steps are counted from 1, got ", args.step);
  return wide;
}

void mark_written(const Tensor& a, const Tensor& b) {
  for (const Tensor& tensor : {a, b})
    if (tensor.defined()) tensor.mark_written();
}

}  // namespace

void adamw(const AdamWArgs& args) {
  constexpr const char* kOp = "adamw";
  const DType state = check_update(kOp, args);
  check_flat(kOp, "m", args.m, args.parameter, state);
  check_flat(kOp, "v", args.v, args.parameter, state);
  for (const double beta : {args.beta1, args.beta2})
    KEEL_CHECK(beta >= 0 && beta < 1, kOp, ": betas must be in [0, 1), got ", args.beta1, " and ", args.beta2);
  const Context& context = args.parameter.context();
  run_kernel(context, kOp, kernel_table(context).adamw, args);
  mark_written(args.parameter, args.master);
  mark_written(args.m, args.v);
}

void sgd(const SgdArgs& args) {
  constexpr const char* kOp = "sgd";
  const DType state = check_update(kOp, args);
  if (args.momentum != 0) check_flat(kOp, "momentum_buffer", args.momentum_buffer, args.parameter, state);
  else KEEL_CHECK(!args.momentum_buffer.defined(), kOp, ": without momentum there is no momentum_buffer");
  KEEL_CHECK(!args.nesterov || (args.momentum > 0 && args.dampening == 0), kOp,
             ": nesterov needs a momentum above 0 and no dampening, got ", args.momentum, " and ", args.dampening);
  const Context& context = args.parameter.context();
  run_kernel(context, kOp, kernel_table(context).sgd, args);
  mark_written(args.parameter, args.master);
  if (args.momentum_buffer.defined()) args.momentum_buffer.mark_written();
}

double sum_of_squares(const Tensor& x) {
  constexpr const char* kOp = "sum_of_squares";
  check_floating(kOp, "x", x);
  return run_kernel(x.context(), kOp, kernel_table(x.context()).sum_of_squares, contiguous(x));
}

bool all_finite(const Tensor& x) {
  constexpr const char* kOp = "all_finite";
  check_floating(kOp, "x", x);
  return run_kernel(x.context(), kOp, kernel_table(x.context()).all_finite, contiguous(x));
}

}  // namespace keel::kernels
