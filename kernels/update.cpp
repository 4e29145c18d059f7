#include "keel/kernels/update.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "keel/kernels/checks.h"
#include "keel/kernels/table.h"
#include "keel/kernels/update_rule.h"

namespace keel {

std::vector<std::string_view> state_names(const UpdateSettings& settings) {
  return visit_rule([](const auto& each) { return each.state_names(); }, settings);
}

double initial_state(const UpdateSettings& settings, [[maybe_unused]] std::size_t kind) {
  return visit_rule(
      [&](const auto& each) {
        if constexpr (requires { each.initial_state(kind); }) return each.initial_state(kind);
        else return 0.0;
      },
      settings);
}

const SharedNumber* shared_number(const UpdateSettings& settings) {
  return visit_rule(
      []<class Settings>(const Settings&) -> const SharedNumber* {
        if constexpr (requires { Settings::kShared; }) return &Settings::kShared;
        else return nullptr;
      },
      settings);
}

int norm_count(const UpdateSettings& settings) {
  return visit_rule(
      []<class Settings>(const Settings&) {
        if constexpr (requires { Settings::kNorms; }) return Settings::kNorms;
        else return 0;
      },
      settings);
}

bool takes_rows(const UpdateSettings& settings) {
  return visit_rule([]<class Settings>(const Settings&) { return kUpdatesRows<Settings>; }, settings);
}

std::string problem_of(const UpdateSettings& settings) {
  return visit_rule([](const auto& each) { return each.problem(); }, settings);
}

bool has_codes(const UpdateSettings& settings) {
  return visit_rule(
      []<class Settings>(const Settings& each) {
        if constexpr (requires { Settings::kSigns; }) return each.state_names().size() == std::size(Settings::kSigns);
        else return false;
      },
      settings);
}

bool decays(const UpdateSettings& settings) {
  return visit_rule(
      []<class Settings>(const Settings&) {
        if constexpr (requires { Settings::kDecays; }) return Settings::kDecays;
        else return true;
      },
      settings);
}

namespace kernels {
namespace {

// A dense tensor with as many elements as the parameter, in its context.
void check_flat(const char* op, const char* role, const Tensor& tensor, const Tensor& parameter, DType dtype) {
  check_context(op, role, tensor, parameter.context());
  KEEL_CHECK(tensor.numel() == parameter.numel() && tensor.dtype() == dtype, op, ": ", role, " must be ", dtype,
             " with the ", parameter.numel(), " elements of the parameter, got ", tensor);
  check_dense(op, role, tensor);
}

bool keeps_codes(const UpdateArgs& args) {
  return std::any_of(args.scales.begin(), args.scales.end(), [](const Tensor& each) { return each.defined(); });
}

// What is kept for the weights: in numbers, or in codes and scales.
void check_kept(const char* op, const UpdateArgs& args, DType wide) {
  const std::vector<std::string_view> kept = state_names(args.settings);
  const bool codes = keeps_codes(args);
  KEEL_CHECK(!codes || has_codes(args.settings), op, ": keeps no states in 8 bits, but scales of blocks were given");
  for (std::size_t i = 0; i < args.state.size(); ++i) {
    if (i >= kept.size()) {
      KEEL_CHECK(!args.state[i].defined() && !args.scales[i].defined(), op, ": keeps ", kept.size(),
                 " numbers for each weight, got more");
      continue;
    }
    const std::string name(kept[i]), scales = name + "'s scales";
    check_flat(op, name.c_str(), args.state[i], args.parameter, codes ? DType::u8 : wide);
    if (!codes) continue;
    check_defined(op, scales.c_str(), args.scales[i]);
    check_tensor(op, scales.c_str(), args.scales[i], {state_blocks(args.parameter.numel())}, wide,
                 args.parameter.context());
    check_dense(op, scales.c_str(), args.scales[i]);
  }
}

void check_state(const char* op, const Tensor& state, const Context& context) {
  check_tensor(op, "step state", state, {sizeof(StepState)}, DType::u8, context);
}

// The gradient of some rows of the parameter, seen as a table.
void check_rows(const char* op, const UpdateArgs& args) {
  const Tensor& gradient = args.gradient;
  KEEL_CHECK(takes_rows(args.settings), op, ": updates no single rows");
  check_context(op, "gradient", gradient, args.parameter.context());
  check_tensor(op, "rows", args.rows, {args.rows.numel()}, DType::i64, args.parameter.context().host());
  KEEL_CHECK(gradient.rank() == 2 && gradient.dim(0) == args.rows.numel() && gradient.dim(1) > 0 &&
                 args.parameter.numel() % gradient.dim(1) == 0 &&
                 (gradient.dtype() == DType::f32 || gradient.dtype() == args.parameter.dtype()),
             op, ": the gradient of ", args.rows.numel(), " rows of ", args.parameter,
             " must be (rows, width), in f32 or the parameter's dtype, got ", gradient);
  check_dense(op, "gradient", gradient);
  check_dense(op, "rows", args.rows);
  const std::int64_t count = args.parameter.numel() / gradient.dim(1);
  const std::int64_t* const rows = args.rows.numel() > 0 ? args.rows.data<std::int64_t>() : nullptr;
  for (std::int64_t i = 0; i < args.rows.numel(); ++i)
    KEEL_CHECK(rows[i] >= 0 && rows[i] < count && (i == 0 || rows[i - 1] < rows[i]), op, ": rows must ascend in [0, ",
               count, "), got ", rows[i], " at position ", i);
}

// All but what the elements share.
void check_update(const char* op, const UpdateArgs& args) {
  const Tensor& parameter = args.parameter;
  check_floating(op, "parameter", parameter);
  check_dense(op, "parameter", parameter);
  const DType wide = parameter.dtype() == DType::f64 ? DType::f64 : DType::f32;
  if (parameter.dtype() == wide)
    KEEL_CHECK(!args.master.defined(), op, ": a parameter in ", wide,
               " is its own master copy, but one was given: ", args.master);
  else if (!args.stochastic_rounding || args.master.defined()) check_flat(op, "master", args.master, parameter, wide);
  check_defined(op, "gradient", args.gradient);
  if (args.rows.defined()) check_rows(op, args);
  else
    check_flat(op, "gradient", args.gradient, parameter,
               args.gradient.dtype() == DType::f32 ? DType::f32 : parameter.dtype());
  check_state(op, args.step, parameter.context());
  const std::string problem = problem_of(args.settings);
  KEEL_CHECK(problem.empty(), op, ": ", problem);
  KEEL_CHECK(args.range.weight_decay == 0 || decays(args.settings), op, ": has no weight decay, got ",
             args.range.weight_decay);
  check_kept(op, args, wide);
}

void check_shared(const char* op, const UpdateSettings& settings, const Tensor& shared, const Context& context) {
  if (const SharedNumber* number = shared_number(settings))
    check_tensor(op, number->name.data(), shared, {1}, DType::f64, context);
  if (const int norms = norm_count(settings); norms > 0)
    check_tensor(op, "squares of norms", shared, {norms}, DType::f64, context);
}

const char* name_of(const UpdateSettings& settings) {
  return visit_rule([](const auto& each) { return each.kName.data(); }, settings);
}

}  // namespace

void update(const UpdateArgs& args) {
  const char* const op = name_of(args.settings);
  check_update(op, args);
  const Context& context = args.parameter.context();
  check_shared(op, args.settings, args.shared, context);
  const KernelTable& table = kernel_table(context);
  run_kernel(context, op, keeps_codes(args) ? table.update_blocks : table.update, args);
  for (const Tensor& tensor : {args.parameter, args.master})
    if (tensor.defined()) tensor.mark_written();
  for (const auto& states : {args.state, args.scales})
    for (const Tensor& state : states)
      if (state.defined()) state.mark_written();
}

void measure_norms(const UpdateArgs& args, const Tensor& squares) {
  const char* const op = name_of(args.settings);
  check_update(op, args);
  const int norms = norm_count(args.settings);
  KEEL_CHECK(norms > 0, op, ": needs no norms");
  const Context& context = args.parameter.context();
  check_tensor(op, "squares of norms", squares, {norms}, DType::f64, context);
  check_dense(op, "squares of norms", squares);
  run_kernel(context, op, kernel_table(context).measure_norms, args, squares);
  squares.mark_written();
}

void advance_shared(const AdvanceArgs& args) {
  constexpr const char* kOp = "advance_shared";
  KEEL_CHECK(shared_number(args.settings) != nullptr, kOp, ": ", name_of(args.settings), " has no shared number");
  check_defined(kOp, "step state", args.step);
  const Context& context = args.step.context();
  check_state(kOp, args.step, context);
  check_shared(kOp, args.settings, args.shared, context);
  run_kernel(context, kOp, kernel_table(context).advance_shared, args);
  args.shared.mark_written();
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

void add_noted(const Tensor& noted, const Tensor& state, std::int64_t first) {
  constexpr const char* kOp = "add_noted";
  check_state(kOp, noted, state.context());
  check_state(kOp, state, state.context());
  run_kernel(state.context(), kOp, kernel_table(state.context()).add_noted, noted, state, first);
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

Tensor taken_of(const Tensor& state) {
  check_state("taken_of", state, state.context());
  constexpr std::int64_t kSize = sizeof(std::int64_t), kOffset = offsetof(StepState, taken) / kSize;
  return Tensor(state.storage(), {1}, {1}, state.offset() / kSize + kOffset, DType::i64);
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
  for (const auto& [name, curve] : {std::pair("rates", args.curves.rates), std::pair("momenta", args.curves.momenta)}) {
    if (!curve.defined()) continue;
    check_tensor(kOp, name, curve, {curve.numel()}, DType::f64, context);
    KEEL_CHECK(curve.numel() > 0 && curve.is_contiguous(), kOp, ": ", name, " must be dense and not empty, got ",
               curve);
  }
  run_kernel(context, kOp, kernel_table(context).decide_step, args);
}

void clip_values(const Tensor& x, const Tensor& state, double limit) {
  constexpr const char* kOp = "clip_values";
  check_floating(kOp, "x", x);
  check_dense(kOp, "x", x);
  check_state(kOp, state, x.context());
  KEEL_CHECK(limit > 0, kOp, ": the limit must be above 0, got ", limit);
  run_kernel(x.context(), kOp, kernel_table(x.context()).clip_values, x, state, limit);
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

}  // namespace kernels
}  // namespace keel
