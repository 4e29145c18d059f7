#include "keel/optim/optimizer.h"

#include <algorithm>
#include <type_traits>

#include "keel/optim/update_args.h"

namespace keel {

UpdateArgs update_args(const ElementwiseOptions& options, const ParameterRange& range, const StepInput& input) {
  UpdateArgs args{
      .parameter = range.parameter,
      .master = range.master,
      .gradient = range.gradient,
      .step = input.step,
      .shared = range.sums.empty() ? input.shared : range.sums.back(),
      .settings = range.group.variant == 0 ? options.settings : options.variants.at(range.group.variant - 1),
      .range = {.lr_factor = range.group.lr_factor,
                .weight_decay = range.group.weight_decay.value_or(options.weight_decay * range.group.decay_factor),
                .is_vector = range.shape.size() < 2,
                .numel = product(range.shape)},
      .stochastic_rounding = options.stochastic_rounding,
      .seed = options.seed,
      .first = range.first};
  args.rows = range.rows;
  KEEL_CHECK(range.state.size() <= args.state.size(), "a range has ", range.state.size(), " states");
  std::copy(range.state.begin(), range.state.end(), args.state.begin());
  return args;
}

void check_options(std::string_view name, const ElementwiseOptions& options) {
  const auto check = [&](const UpdateSettings& settings) {
    const std::string problem = problem_of(settings);
    KEEL_CHECK(problem.empty(), name, ": ", problem);
  };
  check(options.settings);
  const std::vector<std::string_view> states = state_names(options.settings);
  KEEL_CHECK(options.variants.empty() || shared_number(options.settings) == nullptr, name,
             ": no group can have options of its own, since all elements share a number that follows from them");
  for (const UpdateSettings& variant : options.variants) {
    check(variant);
    bool keeps_the_same = variant.index() == options.settings.index() && state_names(variant) == states;
    for (std::size_t kind = 0; keeps_the_same && kind < states.size(); ++kind)
      keeps_the_same = initial_state(variant, kind) == initial_state(options.settings, kind);
    KEEL_CHECK(keeps_the_same, name, ": a group's options must not change what is kept for each element");
  }
  KEEL_CHECK(options.weight_decay >= 0, name, ": weight_decay must not be negative, got ", options.weight_decay);
  KEEL_CHECK(!options.takes_rows || takes_rows(options.settings), name, ": its rule updates no single rows");
  KEEL_CHECK(options.weight_decay == 0 || decays(options.settings), name, ": has no weight decay, got ",
             options.weight_decay);
}

namespace {

class Elementwise final : public Optimizer {
 public:
  Elementwise(std::string_view name, const ElementwiseOptions& options) : name_(name), options_(options) {
    check_options(name, options);
  }
  std::string_view name() const override { return name_; }
  OptimizerRequirements requirements() const override {
    const bool has_norms = norm_count(options_.settings) > 0;
    const bool is_sgd =
        visit_rule([](const auto& rule) { return std::is_same_v<std::decay_t<decltype(rule)>, SgdSettings>; },
                   options_.settings) &&
        !options_.stochastic_rounding;
    return {.rows = options_.takes_rows,
            .one_by_one = has_norms,
            .master = !options_.stochastic_rounding,
            .passes = has_norms ? 1 : 0,
            .linear = is_sgd};
  }
  std::vector<std::string_view> state_names() const override { return keel::state_names(options_.settings); }
  double initial_state(std::size_t kind) const override { return keel::initial_state(options_.settings, kind); }
  const SharedNumber* shared_number() const override { return keel::shared_number(options_.settings); }

  std::int64_t sum_count(int, const Dims&) const override { return norm_count(options_.settings); }
  void measure(int pass, std::span<const ParameterRange> parts, const StepInput& input) const override {
    for (const ParameterRange& part : parts)
      kernels::measure_norms(update_args(options_, part, input), part.measured[static_cast<std::size_t>(pass)]);
  }

  void update(std::span<const ParameterRange> ranges, const StepInput& input) const override {
    for (const ParameterRange& range : ranges) {
      KEEL_CHECK(range.rows.defined() == options_.takes_rows, name_,
                 options_.takes_rows ? " takes gradients that are kept as rows, and got a dense one"
                                     : " takes dense gradients, and got rows");
      kernels::update(update_args(options_, range, input));
    }
  }

  void advance(const StepInput& input) const override {
    if (shared_number() == nullptr) return;
    kernels::advance_shared({.shared = input.shared, .step = input.step, .settings = options_.settings});
  }

 private:
  std::string_view name_;
  ElementwiseOptions options_;
};

}  // namespace

Minimised Optimizer::minimise(Objective&, std::span<const std::vector<Tensor>>, const Tensor&, double) const {
  throw Error(concat(name(), " updates by gradients, and evaluates no loss itself"), ErrorKind::internal);
}

ParameterGroup decay_matrices_only(std::string_view, const Dims& shape) {
  return {.decay_factor = shape.size() >= 2 ? 1.0 : 0.0};
}

std::unique_ptr<Optimizer> make_elementwise(std::string_view name, const ElementwiseOptions& options) {
  if (std::holds_alternative<AdafactorSettings>(options.settings)) return make_adafactor(name, options);
  if (std::holds_alternative<MuonSettings>(options.settings)) return make_muon(name, options);
  if (std::holds_alternative<ScheduleFreeSettings>(options.settings)) return make_schedule_free(name, options);
  const auto* const adam = std::get_if<AdamSettings>(&options.settings);
  if (adam != nullptr && adam->min_8bit_size > 0) return make_adam_8bit(name, options);
  return std::make_unique<Elementwise>(name, options);
}

std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& options) {
  return make_elementwise(
      "AdamW",
      {.settings =
           AdamSettings{.beta1 = options.beta1, .beta2 = options.beta2, .epsilon = options.epsilon, .decoupled = true},
       .weight_decay = options.weight_decay,
       .stochastic_rounding = options.stochastic_rounding,
       .seed = options.seed});
}

std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options) {
  return make_elementwise("SGD", {.settings = SgdSettings{.momentum = options.momentum,
                                                          .dampening = options.dampening,
                                                          .nesterov = options.nesterov},
                                  .weight_decay = options.weight_decay});
}

}  // namespace keel
