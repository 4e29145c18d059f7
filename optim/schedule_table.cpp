#include "keel/optim/schedule_table.h"

#include <algorithm>

#include "keel/optim/schedules/formulas.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

using P = ScheduleParameter;
using T = ScheduleValueType;
using Use = ScheduleUse;

constexpr ScheduleLimits kAny = {};
constexpr ScheduleLimits kUnit = {.low = 0, .high = 1};
constexpr ScheduleLimits kBelowOne = {.low = 0, .high = 1, .high_open = true};
constexpr ScheduleLimits kUpToOne = {.low = 0, .high = 1, .low_open = true};
constexpr ScheduleLimits kPositive = {.low = 0, .low_open = true};
constexpr ScheduleLimits at_least(double low) { return {.low = low}; }

// In the order of the enumerators.
constexpr ScheduleParameterRow kParameters[] = {
    {"steps", T::whole, at_least(1), "Steps of the whole schedule; auto: all of the run.",
     "total_steps|num_training_steps|total_num_steps"},
    {"warmup", T::count_or_ratio, at_least(0),
     "Steps in which the rate rises to its peak; with a decimal point, a ratio of all steps, rounded up.",
     "warmup_steps|num_warmup_steps|warmup_num_steps|warmup_iters", "warmup_ratio|warmup_proportion"},
    {"warmup_type", T::choice, kAny, "Shape of the rise."},
    {"constant", T::count_or_ratio, at_least(0), "Steps at the peak before the decay, instead of a warm-up.",
     "num_constant_steps"},
    {"stable", T::count_or_ratio, at_least(0), "Steps at the peak; auto: what warm-up and decay leave of all steps.",
     "num_stable_steps"},
    {"decay", T::count_or_ratio, at_least(0), "Steps of the decay at the end.", "num_decay_steps"},
    {"decay_type", T::choice, kAny, "Shape of the decay."},
    {"min_lr", T::rate, at_least(0), "Learning rate at the lowest point; at most optimizer.lr.",
     "eta_min|lr_end|end_learning_rate"},
    {"base_lr", T::rate, at_least(0), "Learning rate from which the rise begins.",
     "warmup_min_lr|cycle_min_lr|lr_range_test_min_lr"},
    {"max_lr", T::rate, kPositive, "Learning rate at the peak; auto: optimizer.lr.", "warmup_max_lr|cycle_max_lr"},
    {"min_ratio", T::number, kUnit, "The lowest learning rate as a ratio of optimizer.lr.",
     "min_lr_ratio|min_lr_rate|cos_min_ratio"},
    {"start_ratio", T::number, kUnit,
     "The warm-up's first rate as a ratio of optimizer.lr; auto, where it is allowed: one part of the warm-up.",
     "warmup_min_ratio|warmup_lr_rate"},
    {"cycles", T::number, at_least(0), "Waves of the cosine after the warm-up; 0.5 falls once, 1 comes back.",
     "num_cycles"},
    {"power", T::number, at_least(0), "Exponent of the decay; 1: linear.", "decay_power|lr_decay_power"},
    {"timescale", T::whole, at_least(1), "Steps in which the decay begins; auto: the warm-up's, or 10000 without one."},
    {"cycle", T::flag, kAny, "Whether the decay starts again after its end, each time over more steps.",
     "scheduler_cycle"},
    {"layer_decay", T::number, kPositive, "Factor on the rate for each layer further from the output.",
     "layerwise_lr_decay_power"},
    {"step_size", T::whole, at_least(1), "Steps between two changes.", "lr_range_test_step_size"},
    {"milestones", T::milestones, at_least(1), "Steps of the changes, in rising order."},
    {"gamma", T::number, kPositive, "Factor of each change."},
    {"factor", T::number, kUnit, "Factor on the rate in the first total_iters steps."},
    {"start_factor", T::number, kUpToOne, "Factor on the rate at the start."},
    {"end_factor", T::number, kUnit, "Factor on the rate at the end."},
    {"total_iters", T::whole, at_least(1), "Steps until the end."},
    {"T_max", T::whole, at_least(1), "Steps from the peak to the lowest point; auto: all of the run.", "t_max"},
    {"T_0", T::whole, at_least(1), "Steps until the first restart.", "t_0"},
    {"T_mult", T::whole, at_least(1), "Each cycle is so many times as long as the one before.", "t_mult"},
    {"step_size_up", T::whole, at_least(1), "Steps up.", "cycle_first_step_size"},
    {"step_size_down", T::whole, at_least(1), "Steps down; auto: as many as up.", "cycle_second_step_size"},
    {"mode", T::choice, kAny, "The height of later cycles: the same, half each time, or gamma to the power of steps."},
    {"pct_start", T::number, kUnit, "Part of all steps in which the rate rises."},
    {"anneal", T::choice, kAny, "Shape of rise and fall.", "anneal_strategy"},
    {"div_factor", T::number, kPositive, "The first rate is max_lr divided by it."},
    {"final_div_factor", T::number, kPositive, "The last rate is the first divided by it."},
    {"three_phase", T::flag, kAny, "Whether the fall mirrors the rise before the rate dies out."},
    {"cycle_momentum", T::flag, kAny, "Whether momentum, or beta1, goes down while the rate goes up."},
    {"base_momentum", T::number, kBelowOne, "Momentum at the highest rate.", "cycle_min_mom"},
    {"max_momentum", T::number, kBelowOne, "Momentum at the lowest rate.", "cycle_max_mom"},
    {"first_stairs", T::whole, at_least(0), "Stairs of the way up; 0: none.", "cycle_first_stair_count"},
    {"second_stairs", T::whole, at_least(0), "Stairs of the way down; auto: as many as up.",
     "cycle_second_stair_count"},
    {"decay_step_size", T::whole, at_least(0), "Steps of one unit of decay after the cycle; 0: no decay."},
    {"decay_lr_rate", T::number, at_least(0), "After the cycle the rate is divided by 1 + this for each unit."},
    {"decay_momentum_rate", T::number, at_least(0), "After the cycle momentum is multiplied by 1 + this for each unit.",
     "decay_mom_rate"},
    {"step_rate", T::number, at_least(0), "Growth of the factor in step_size steps.", "lr_range_test_step_rate"},
    {"staircase", T::flag, kAny, "Whether the rate changes only every step_size steps.", "lr_range_test_staircase"},
    {"schedules", T::schedules, kAny, "The schedules, each written like `scheduler` itself."},
};
static_assert(std::size(kParameters) == kScheduleParameters);

constexpr std::string_view kShapes = "linear|cosine|1-sqrt", kRises = "log|linear";
constexpr Use kSteps = {P::steps, "auto"}, kWarmup = {P::warmup, "0"};
constexpr Use kStepSizeDown = {P::step_size_down, "auto"}, kCycleMomentum = {P::cycle_momentum, "true"};

constexpr Use kOwnDecay[] = {kSteps, kWarmup, {P::min_lr, "0"}};
constexpr Use kWarmupAlone[] = {kWarmup};
constexpr Use kWarmed[] = {kSteps, kWarmup};
constexpr Use kStepLr[] = {{P::step_size, ""}, {P::gamma, "0.1"}};
constexpr Use kMultiStepLr[] = {{P::milestones, ""}, {P::gamma, "0.1"}};
constexpr Use kConstantLr[] = {{P::factor, "0.3333333333333333"}, {P::total_iters, "5"}};
constexpr Use kLinearLr[] = {{P::start_factor, "0.3333333333333333"}, {P::end_factor, "1"}, {P::total_iters, "5"}};
constexpr Use kExponentialLr[] = {{P::gamma, ""}};
constexpr Use kPolynomialLr[] = {{P::total_iters, "5"}, {P::power, "1"}};
constexpr Use kCosineAnnealing[] = {{P::t_max, "auto"}, {P::min_lr, "0"}};
constexpr Use kWarmRestarts[] = {{P::t_0, ""}, {P::t_mult, "1"}, {P::min_lr, "0"}};
constexpr Use kCyclic[] = {{P::base_lr, ""},
                           {P::max_lr, "auto"},
                           {P::step_size_up, "2000"},
                           kStepSizeDown,
                           {P::mode, "triangular", "triangular|triangular2|exp_range"},
                           {P::gamma, "1"},
                           kCycleMomentum,
                           {P::base_momentum, "0.8"},
                           {P::max_momentum, "0.9"}};
constexpr Use kOneCycleLr[] = {kSteps,
                               {P::max_lr, "auto"},
                               {P::pct_start, "0.3"},
                               {P::anneal, "cos", "cos|linear"},
                               {P::div_factor, "25"},
                               {P::final_div_factor, "10000"},
                               {P::three_phase, "false"},
                               kCycleMomentum,
                               {P::base_momentum, "0.85"},
                               {P::max_momentum, "0.95"}};
constexpr Use kCosineWarmed[] = {kSteps, kWarmup, {P::cycles, "0.5"}};
constexpr Use kRestarts[] = {kSteps, kWarmup, {P::cycles, "1"}};
constexpr Use kInverseSqrt[] = {kWarmup, {P::timescale, "auto"}};
constexpr Use kPolynomial[] = {kSteps, kWarmup, {P::min_lr, "1e-07"}, {P::power, "1"}};
constexpr Use kCosineMinLr[] = {kSteps, kWarmup, {P::min_lr, "0"}, {P::min_ratio, "0"}, {P::cycles, "0.5"}};
constexpr Use kCosineWarmupMinLr[] = {
    kSteps, kWarmup, {P::min_lr, "0"}, {P::min_ratio, "0"}, {P::start_ratio, "auto"}, {P::cycles, "0.5"}};
constexpr Use kStableDecay[] = {kSteps,
                                kWarmup,
                                {P::warmup_type, "linear", kShapes},
                                {P::stable, "auto"},
                                {P::decay, ""},
                                {P::decay_type, "cosine", kShapes},
                                {P::min_ratio, "0"},
                                {P::cycles, "0.5"}};
constexpr Use kSqrtDecay[] = {kSteps, kWarmup, {P::constant, "0"}};
constexpr Use kPolynomialDecay[] = {kSteps, kWarmup, {P::power, "1"}};
constexpr Use kLayerwise[] = {kSteps,          {P::warmup, "1000"}, {P::min_lr, "0.0001"},
                              {P::power, "1"}, {P::cycle, "false"}, {P::layer_decay, "1"}};
constexpr Use kWarmupLr[] = {
    {P::base_lr, "0"}, {P::max_lr, "auto"}, {P::warmup, "1000"}, {P::warmup_type, "log", kRises}};
constexpr Use kWarmupDecayLr[] = {
    kSteps, {P::base_lr, "0"}, {P::max_lr, "auto"}, {P::warmup, "1000"}, {P::warmup_type, "log", kRises}};
constexpr Use kWarmupCosineLr[] = {
    kSteps, {P::start_ratio, "0"}, {P::warmup, "1000"}, {P::min_ratio, "0.0001"}, {P::warmup_type, "log", kRises}};
constexpr Use kOneCycle[] = {
    {P::base_lr, ""},       {P::max_lr, "auto"},        {P::step_size_up, "2000"}, kStepSizeDown,
    {P::first_stairs, "0"}, {P::second_stairs, "auto"}, {P::decay_step_size, "0"}, {P::decay_lr_rate, "0"},
    kCycleMomentum,         {P::base_momentum, "0.8"},  {P::max_momentum, "0.9"},  {P::decay_momentum_rate, "0"}};
constexpr Use kRangeTest[] = {
    {P::base_lr, "0.001"}, {P::step_size, "2000"}, {P::step_rate, "1"}, {P::staircase, "false"}};
constexpr Use kSequence[] = {{P::schedules, ""}, {P::milestones, ""}};
constexpr Use kProduct[] = {{P::schedules, ""}};

double at_steps(const ScheduleNumbers& n) { return n[P::steps]; }
double at_warmup(const ScheduleNumbers& n) { return n[P::warmup]; }
double at_total_iters(const ScheduleNumbers& n) { return n[P::total_iters]; }

void complain_unless(bool holds, ScheduleComplaints& complaints, std::string_view where, std::string message) {
  if (!holds) complaints.push_back({std::string(where), std::move(message)});
}

void check_milestones(const ScheduleNumbers& n, ScheduleComplaints& complaints) {
  complain_unless(
      std::adjacent_find(n.milestones.begin(), n.milestones.end(), std::greater_equal<>()) == n.milestones.end(),
      complaints, "milestones", "must rise");
}
void check_floors(const ScheduleNumbers& n, ScheduleComplaints& complaints) {
  complain_unless(n[P::min_lr] == 0 || n[P::min_ratio] == 0, complaints, "min_ratio",
                  "says the same as min_lr; give one of the two");
}
void check_rise(const ScheduleNumbers& n, ScheduleComplaints& complaints) {
  complain_unless(n[P::base_lr] <= n[P::max_lr], complaints, "base_lr", "is above max_lr");
}
void check_cycle(const ScheduleNumbers& n, ScheduleComplaints& complaints) {
  check_rise(n, complaints);
  complain_unless(n[P::base_momentum] <= n[P::max_momentum], complaints, "base_momentum", "is above max_momentum");
}
void check_momentum(const ScheduleNumbers& n, ScheduleComplaints& complaints) {
  complain_unless(n[P::base_momentum] <= n[P::max_momentum], complaints, "base_momentum", "is above max_momentum");
}
void check_level(const ScheduleNumbers& n, ScheduleComplaints& complaints) {
  complain_unless((n[P::warmup] > 0) != (n[P::constant] > 0), complaints, "constant",
                  "either constant or warmup must be above 0, and not both");
}
void check_stages(const ScheduleNumbers& n, ScheduleComplaints& complaints) {
  const double stages = n[P::warmup] + n[P::decay];
  complain_unless(n[P::stable] >= 0, complaints, "decay",
                  concat("warm-up and decay take ", stages, " steps, and the schedule has ", n[P::steps]));
}

constexpr std::string_view kKeel = "keel", kTorch = "PyTorch, torch.optim.lr_scheduler",
                           kHuggingFace = "Hugging Face transformers", kFramework = "transformers-framework",
                           kDeepSpeed = "DeepSpeed, deepspeed.runtime.lr_schedules";
constexpr std::string_view kSgdr = "keel; Loshchilov and Hutter 2017, SGDR, without restarts";

// In formulas t is the number of steps taken, N steps, w warmup, p = (t - w) / (N - w), and rates are divided by
// optimizer.lr.
namespace s = schedules;
constexpr ScheduleKind kKinds[] = {
    {"cosine", "", kSgdr, "(t+1)/(w+1), then min_lr + (1 - min_lr) (1 + cos(pi p)) / 2, which stays after N", kOwnDecay,
     s::cosine, nullptr, at_steps},
    {"constant", "Constant", kKeel, "(t+1)/(w+1), then 1", kWarmupAlone, s::constant, nullptr, at_warmup},
    {"linear", "", kKeel, "(t+1)/(w+1), then min_lr + (1 - min_lr) (1 - p), which stays after N", kOwnDecay, s::linear,
     nullptr, at_steps},
    {"StepLR", "", kTorch, "gamma^floor(t / step_size)", kStepLr, s::step_lr},
    {"MultiStepLR", "", kTorch, "gamma^(milestones passed)", kMultiStepLr, s::multi_step_lr, nullptr, nullptr, false,
     check_milestones},
    {"ConstantLR", "", kTorch, "factor, from total_iters on 1", kConstantLr, s::constant_lr, nullptr, at_total_iters},
    {"LinearLR", "", kTorch, "from start_factor to end_factor in total_iters steps", kLinearLr, s::linear_lr, nullptr,
     at_total_iters},
    {"ExponentialLR", "", kTorch, "gamma^t", kExponentialLr, s::exponential_lr},
    {"PolynomialLR", "", kTorch, "(1 - t / total_iters)^power, then 0", kPolynomialLr, s::polynomial_lr, nullptr,
     at_total_iters},
    {"CosineAnnealingLR", "", kTorch,
     "min_lr + (1 - min_lr) (1 + cos(pi t / T_max)) / 2, which rises again after T_max", kCosineAnnealing,
     s::cosine_annealing_lr},
    {"CosineAnnealingWarmRestarts", "", kTorch,
     "min_lr + (1 - min_lr) (1 + cos(pi t' / T)) / 2, t' since the last restart, T = T_0 and T_mult times longer each "
     "time",
     kWarmRestarts, s::cosine_annealing_warm_restarts},
    {"CyclicLR", "", kTorch,
     "base_lr + (max_lr - base_lr) h, h up from 0 to 1 and down again, times 1, 2^-cycle or gamma^t by mode", kCyclic,
     s::cyclic_lr, s::cyclic_lr_momentum, nullptr, false, check_cycle},
    {"OneCycleLR", "", kTorch,
     "from max_lr/div_factor to max_lr in pct_start N steps, then to max_lr/div_factor/final_div_factor", kOneCycleLr,
     s::one_cycle_lr, s::one_cycle_lr_momentum, nullptr, true, check_momentum},
    {"constant_with_warmup", "ConstantWithWarmup", kHuggingFace, "min(1, t / w)", kWarmupAlone, s::constant_with_warmup,
     nullptr, at_warmup},
    {"linear_with_warmup", "LinearWithWarmup|linear_decay", kHuggingFace, "t / w, then max(0, 1 - p)", kWarmed,
     s::linear_with_warmup, nullptr, at_steps},
    {"cosine_with_warmup", "CosineWithWarmup", kHuggingFace, "t / w, then (1 + cos(2 pi cycles p)) / 2", kCosineWarmed,
     s::cosine_with_warmup},
    {"cosine_with_restarts", "CosineWithHardRestartsWithWarmup|cosine_with_hard_restarts_with_warmup", kHuggingFace,
     "t / w, then (1 + cos(pi (cycles p mod 1))) / 2, from N on 0", kRestarts, s::cosine_with_restarts, nullptr,
     at_steps},
    {"inverse_sqrt", "InverseSQRT", kHuggingFace, "t / w, then 1 / sqrt((t + timescale - w) / timescale)", kInverseSqrt,
     s::inverse_sqrt},
    {"polynomial", "PolynomialDecayWithWarmup|polynomial_decay_with_warmup", kHuggingFace,
     "t / w, then (1 - min_lr) (1 - p)^power + min_lr", kPolynomial, s::polynomial, nullptr, at_steps},
    {"cosine_with_min_lr", "", kHuggingFace, "t / w, then m + (1 - m) (1 + cos(2 pi cycles p)) / 2, m the lowest rate",
     kCosineMinLr, s::cosine_with_min_lr, nullptr, nullptr, false, check_floors},
    {"cosine_warmup_with_min_lr", "", kHuggingFace,
     "start_ratio + (1 - start_ratio) t / (w - 1), then as cosine_with_min_lr one step ahead", kCosineWarmupMinLr,
     s::cosine_warmup_with_min_lr, nullptr, nullptr, false, check_floors},
    {"wsd", "warmup_stable_decay", kHuggingFace,
     "rise of shape warmup_type, 1 for stable steps, fall of shape decay_type, then min_ratio", kStableDecay,
     s::warmup_stable_decay, nullptr, nullptr, false, check_stages},
    {"sqrt_decay", "", kFramework, "1 / sqrt(max(k, t) / k), k = constant, or k = warmup after a rise t / w",
     kSqrtDecay, s::sqrt_decay, nullptr, nullptr, true, check_level},
    {"normal_decay", "", kFramework, "exp(-(2 (t - w) / w)^2), then exp(-((t - w) / N)^2)", kWarmed, s::normal_decay,
     nullptr, nullptr, true},
    {"polynomial_decay", "", "transformers-framework, as meant: of the base rate", "t / w, then (1 - p)^power",
     kPolynomialDecay, s::polynomial_decay, nullptr, nullptr, true},
    {"polynomial_decay_layerwise", "", "transformers-framework, as meant: the warm-up ends at 1",
     "((1 - min_lr) (1 - t / N)^power + min_lr) min(1, t / w), times layer_decay^(deepest layer - layer)", kLayerwise,
     s::polynomial_decay_layerwise},
    {"WarmupLR", "", kDeepSpeed, "base_lr + (max_lr - base_lr) g, g = log(t) / log(w) or (t-1) / w, then 1", kWarmupLr,
     s::warmup_lr, nullptr, nullptr, false, check_rise},
    {"WarmupDecayLR", "", kDeepSpeed, "as WarmupLR, then g = max(0, (N - t + 1) / (N - w))", kWarmupDecayLr,
     s::warmup_decay_lr, nullptr, nullptr, false, check_rise},
    {"WarmupCosineLR", "", kDeepSpeed,
     "0, then start_ratio + (1 - start_ratio) g, then min_ratio + (1 - min_ratio) (1 + cos(pi p)) / 2", kWarmupCosineLr,
     s::warmup_cosine_lr},
    {"OneCycle", "", kDeepSpeed,
     "from base_lr to max_lr and back, then base_lr / (1 + decay_lr_rate t' / decay_step_size), t' since then",
     kOneCycle, s::one_cycle, s::one_cycle_momentum, nullptr, false, check_cycle},
    {"LRRangeTest", "", kDeepSpeed, "base_lr (1 + step_rate t / step_size)", kRangeTest, s::lr_range_test},
    {"sequence", "SequentialLR", kTorch, "one schedule after the other, each from its own t = 0, at the milestones",
     kSequence, nullptr, nullptr, nullptr, false, check_milestones},
    {"product", "ChainedScheduler", kTorch, "the product of all schedules", kProduct, nullptr},
};

}  // namespace

const ScheduleUse* ScheduleKind::find(ScheduleParameter parameter) const {
  const auto found = std::find_if(parameters.begin(), parameters.end(),
                                  [&](const ScheduleUse& use) { return use.parameter == parameter; });
  return found == parameters.end() ? nullptr : &*found;
}

std::span<const ScheduleKind> schedule_kinds() { return kKinds; }

const ScheduleParameterRow& schedule_parameter(ScheduleParameter parameter) {
  return kParameters[static_cast<std::size_t>(parameter)];
}

std::vector<std::string_view> schedule_words(std::string_view list) {
  std::vector<std::string_view> words;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find('|'), list.size());
    words.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return words;
}

int find_schedule(std::string_view name) {
  std::vector<std::string_view> known;
  for (std::size_t i = 0; i < std::size(kKinds); ++i) {
    known.push_back(kKinds[i].name);
    for (const std::string_view alias : schedule_words(kKinds[i].aliases)) {
      known.push_back(alias);
      if (alias == name) return static_cast<int>(i);
    }
    if (kKinds[i].name == name) return static_cast<int>(i);
  }
  const std::string likely = nearest(name.substr(0, 64), known);
  std::string all;
  for (const ScheduleKind& kind : kKinds) all += concat(all.empty() ? "" : ", ", kind.name);
  throw Error(concat("there is no schedule '", name.substr(0, 64), "'",
                     likely.empty() ? concat("; there are ", all) : concat(", did you mean '", likely, "'?")));
}

}  // namespace keel
