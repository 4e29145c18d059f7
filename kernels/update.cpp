#include "keel/kernels/update.h"

#include <cstddef>
#include <cstring>

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

void check_state(const char* op, const Tensor& state, const Context& context) {
  check_tensor(op, "step state", state, {sizeof(StepState)}, DType::u8, context);
}

// What AdamW and SGD ask alike. Returns the dtype of the optimizer's state.
template <class Args>
DType check_update(const char* op, const Args& args, bool needs_master = true) {
  const Tensor& parameter = args.parameter;
  check_floating(op, "parameter", parameter);
  check_dense(op, "parameter", parameter);
  const DType wide = parameter.dtype() == DType::f64 ? DType::f64 : DType::f32;
  if (parameter.dtype() == wide)
    KEEL_CHECK(!args.master.defined(), op, ": a parameter in ", wide,
               " is its own master copy, but one was given: ", args.master);
  else if (needs_master || args.master.defined()) check_flat(op, "master", args.master, parameter, wide);
  check_defined(op, "gradient", args.gradient);
  check_flat(op, "gradient", args.gradient, parameter,
             args.gradient.dtype() == DType::f32 ? DType::f32 : parameter.dtype());
  check_state(op, args.step, parameter.context());
  return wide;
}

void mark_written(const Tensor& a, const Tensor& b) {
  for (const Tensor& tensor : {a, b})
    if (tensor.defined()) tensor.mark_written();
}

}  // namespace

void adamw(const AdamWArgs& args) {
  constexpr const char* kOp = "adamw";
  const DType state = check_update(kOp, args, !args.stochastic_rounding);
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

Tensor make_step_state(const Context& context, const StepState& initial) {
  Tensor state = empty(context, {sizeof(StepState)}, DType::u8, Purpose::workspace);
  state.begin_as(&initial);
  return state;
}

StepState read_step_state(const Tensor& state) {
  check_state("read_step_state", state, state.context());
  StepState numbers;
  std::memcpy(&numbers, state.to_vector<std::uint8_t>().data(), sizeof numbers);
  return numbers;
}

void add_squares(const Tensor& x, const Tensor& state, std::int64_t first) {
  constexpr const char* kOp = "add_squares";
  check_floating(kOp, "x", x);
  check_state(kOp, state, x.context());
  run_kernel(x.context(), kOp, kernel_table(x.context()).add_squares, contiguous(x), state, first);
}

void add_tokens(const Tensor& state, double tokens) {
  constexpr const char* kOp = "add_tokens";
  check_state(kOp, state, state.context());
  KEEL_CHECK(tokens >= 0, kOp, ": tokens must not be negative, got ", tokens);
  run_kernel(state.context(), kOp, kernel_table(state.context()).add_tokens, state, tokens);
}

Tensor partial_of(const Tensor& state) {
  check_state("partial_of", state, state.context());
  return state.slice(0, 0, sizeof(StepPartial));
}

Tensor loss_scale_of(const Tensor& state) {
  check_state("loss_scale_of", state, state.context());
  constexpr std::int64_t kOffset = offsetof(StepState, loss_scale) / sizeof(float);
  return Tensor(state.storage(), {1}, {1}, state.offset() / static_cast<std::int64_t>(sizeof(float)) + kOffset,
                DType::f32);
}

void decide_step(const StepArgs& args) {
  constexpr const char* kOp = "decide_step";
  check_defined(kOp, "step state", args.state);
  const Context& context = args.state.context();
  check_state(kOp, args.state, context);
  if (args.partials.defined()) {
    check_tensor(kOp, "partials", args.partials, {args.partials.numel()}, DType::u8, context);
    check_dense(kOp, "partials", args.partials);
    KEEL_CHECK(args.partials.numel() > 0 && args.partials.numel() % sizeof(StepPartial) == 0, kOp,
               ": partials must be ", sizeof(StepPartial), " bytes for each rank, got ", args.partials);
  }
  if (args.rates.defined()) {
    check_tensor(kOp, "rates", args.rates, {args.rates.numel()}, DType::f64, context);
    KEEL_CHECK(args.rates.numel() > 0 && args.rates.is_contiguous(), kOp, ": rates must be dense and not empty, got ",
               args.rates);
  }
  run_kernel(context, kOp, kernel_table(context).decide_step, args);
}

double sum_of_squares(const Tensor& x) {
  check_floating("sum_of_squares", "x", x);
  const Tensor state = make_step_state(x.context());
  add_squares(x, state);
  return read_step_state(state).partial.squares;
}

bool all_finite(const Tensor& x) {
  check_floating("all_finite", "x", x);
  const Tensor state = make_step_state(x.context());
  add_squares(x, state);
  return read_step_state(state).partial.bad == StepPartial::kNothingBad;
}

}  // namespace keel::kernels
