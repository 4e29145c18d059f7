#include "keel/trainer/assembly.h"
#include "keel/trainer/config_keys.h"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "keel/dist/comm/algorithm_names.h"
#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/background_communicator.h"
#include "keel/dist/comm/choosing_communicator.h"
#include "keel/dist/comm/exchange.h"
#include "keel/dist/comm/nccl_communicator.h"
#include "keel/dist/comm/regroup.h"
#include "keel/dist/comm/staged_communicator.h"
#include "keel/dist/parallel/rank_groups.h"
#include "keel/nn/layers.h"
#include "keel/runtime/memory_limit.h"
#include "keel/trainer/device.h"
#include "keel/trainer/learning_rate.h"
#include "keel/trainer/schema_rows.h"

namespace keel {
namespace {

std::vector<std::string_view> split_text(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string meant_instead(std::string_view word, const std::vector<std::string>& words,
                          const std::vector<std::string>& names) {
  const std::string close = nearest(word, words);
  return close.empty() ? concat("; they are like ", names.front()) : concat("; did you mean '", close, "'?");
}

// A communicator of its own for what the engine sends.
std::unique_ptr<Communicator> engine_ranks(const AlgorithmName& way, bool tunes, Communicator& ranks) {
  if (tunes && !way.algorithm.empty() && find_algorithm(way.algorithm).adds_at_once)
    return make_choosing_communicator(ranks, way.name);
  const bool is_standard = way.algorithm == "direct" && way.shared_memory;
  if (is_standard) return ranks.split(0, ranks.rank());
  return ranks.regroup({.algorithm = std::string(way.algorithm), .shared_memory = way.shared_memory});
}

// The rule, with the schedule's factor on the rate of each layer.
GroupRule with_layer_factors(GroupRule rule, const Config& config, LayerDepths depths) {
  return [rule = std::move(rule), schedule = LearningRate(config).schedule(), depths = std::move(depths)](
             std::string_view name, const Dims& shape) {
    ParameterGroup group = rule(name, shape);
    group.lr_factor *= schedule.layer_factor(static_cast<double>(depths.of(name)), static_cast<double>(depths.deepest));
    return group;
  };
}

// Of parameters, each once.
std::vector<std::string> names_of(Module& model) {
  std::vector<std::string> names;
  std::set<const Parameter::State*> seen;  // a tied parameter stands where it is met first
  for_each_parameter(model, [&](const std::string& path, Parameter& parameter) {
    if (seen.insert(parameter.state().get()).second) names.push_back(path);
  });
  return names;
}

}  // namespace

Context make_context(const Config& config, const Communicator& communicator, LogSink log) {
  const std::vector<int>& nodes = communicator.nodes();
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const auto here = std::count(nodes.begin(), nodes.end(), nodes[rank]);
  const auto before = std::count(nodes.begin(), nodes.begin() + communicator.rank(), nodes[rank]);
  const auto processors = static_cast<int>(std::thread::hardware_concurrency());
  ContextOptions options;
  options.device = choose_device(config.device, static_cast<int>(before));
  options.threads = static_cast<int>(config.threads);
  // A launcher may have given each rank processors of its own.
  if (options.threads == 0 && here > 1)
    options.threads = std::min(default_threads(), std::max(1, processors / static_cast<int>(here)));
  options.kernels = config.kernels;
  options.log = std::move(log);
  return Context::create(std::move(options));
}

std::unique_ptr<Communicator> make_background(const Config& config, Communicator& ranks) {
  using Progress = ShardingConfig::Progress;
  if (ranks.size() == 1 || config.sharding.progress == Progress::poll) return nullptr;
  // Threads that compute have been counted where the configuration names them; without, they are all there are.
  const std::vector<int>& nodes = ranks.nodes();
  const auto here = std::count(nodes.begin(), nodes.end(), nodes[static_cast<std::size_t>(ranks.rank())]);
  const bool has_spare = config.threads > 0 && (config.threads + 1) * here <= default_threads();
  const bool wants = config.sharding.progress == Progress::thread || (has_spare && ranks.allows_threads());
  for (const int each : gather_values(ranks, wants ? 1 : 0))
    if (each == 0) return nullptr;
  return make_background_communicator(ranks.split(0, ranks.rank()));
}

std::unique_ptr<Optimizer> make_optimizer(const Config& config) {
  OptimizerValues values = config.optimizer;
  const OptimizerEntry& entry = find_optimizer(config.optimizer.type);
  const LearningRate schedule(config);
  if (schedule.schedule().cycles_momentum() && values.momentum == 0 && entry.has("momentum"))
    for (std::int64_t done = 0; done < config.steps && values.momentum == 0; ++done)
      values.momentum = schedule.momentum(done).value_or(0);
  std::vector<OptimizerValues> variants = group_options(config);
  for (OptimizerValues& each : variants)
    if (each.momentum == 0) each.momentum = values.momentum;
  return make_optimizer(entry, values, config.seed, variants);
}

LayerDepths depths_of(Module& model) { return layer_depths(names_of(model)); }

GroupRule make_groups(const Config& config, Module& model) {
  GroupRule rule = group_by_name(config.optimizer.groups);
  LayerDepths depths = depths_of(model);
  if (config.optimizer.layer_decay != 1) rule = decay_by_depth(std::move(rule), config.optimizer.layer_decay, depths);
  rule = with_layer_factors(std::move(rule), config, std::move(depths));
  return keep_full_state(std::move(rule), embedding_tables(model));
}

std::string check_groups(const Config& config, Module& model) {
  const std::vector<std::string> names = names_of(model);
  std::vector<std::string> words;
  for (const std::string& name : names)
    for (const std::string_view word : split_text(name, '.')) words.emplace_back(word);
  std::string unused;
  for (const GroupPattern& group : config.optimizer.groups) {
    KEEL_CHECK(std::any_of(names.begin(), names.end(), [&](const std::string& name) { return group.fits(name); }),
               "optimizer.groups: '", group.match, "' fits no parameter", meant_instead(group.match, words, names));
    for (const std::string_view word : split_text(group.match, '|'))
      if (std::none_of(names.begin(), names.end(),
                       [&](const std::string& name) { return name.find(word) != std::string::npos; }))
        unused += concat(unused.empty() ? "optimizer.groups: " : ", ", "no parameter's name contains '", word, "'",
                         meant_instead(word, words, names));
  }
  return unused;
}

StepCurves make_curves(const Config& config, const Context& context) {
  return tabulated(LearningRate(config), config.steps, context);
}

StepCurves tabulated(const LearningRate& schedule, std::int64_t steps, const Context& context) {
  const std::int64_t last = std::min(schedule.settles(), steps - 1);
  constexpr std::int64_t kMost = std::int64_t{1} << 27;  // 1 GiB
  KEEL_CHECK(last < kMost, "steps: a schedule that changes for ", last, " steps is too long to be tabulated; ", kMost,
             " are possible");
  const auto curve = [&](auto&& number_after) {
    std::vector<double> numbers;
    for (std::int64_t done = 0; done <= last; ++done) numbers.push_back(number_after(done));
    return from_values(context, numbers, {static_cast<std::int64_t>(numbers.size())}, Purpose::workspace);
  };
  StepCurves curves = {.rates = curve([&](std::int64_t done) { return schedule.rate(done); })};
  if (schedule.schedule().cycles_momentum())
    curves.momenta =
        curve([&](std::int64_t done) { return schedule.momentum(done).value_or(StepState::kOwnMomentum); });
  return curves;
}

StepCurves make_curves(const LearningRate& rates, std::int64_t done, const Context& context) {
  const auto number = [&](double value) {
    return from_values(context, std::vector<double>{value}, {1}, Purpose::workspace);
  };
  StepCurves curves = {.rates = number(rates.rate(done))};
  if (rates.schedule().cycles_momentum())
    curves.momenta = number(rates.momentum(done).value_or(StepState::kOwnMomentum));
  return curves;
}

StepCurves scaled(const StepCurves& curves, double factor) {
  if (factor == 1) return curves;
  std::vector<double> rates = HostCopy(curves.rates).get().to_vector<double>();
  for (double& rate : rates) rate *= factor;
  StepCurves all = curves;
  all.rates = from_values(curves.rates.context(), rates, curves.rates.shape(), Purpose::workspace);
  return all;
}

ShardedOptions engine_options(const Config& config, std::int64_t micro_batches, Module& model) {
  ShardedOptions options;
  take_engine_options(config, options);
  options.policy = precision_policy(config);
  options.micro_batches = micro_batches;
  options.groups = make_groups(config, model);
  options.sharding.stage = stage_number(config.strategy.stage);
  // Where backward computes the last block anew, nothing of it stays (keel/dist/plan/rank_plan.h plans that, too).
  const std::string_view recompute = config.schema().key_of(KeyRole::recompute);
  if (!recompute.empty() && config.flag(recompute)) options.sharding.keep_last_unit = false;
  const auto also_by_strategy = [](Residence& residence, Strategy::Offload place) {
    if (residence == Residence::device) residence = residence_of(place);
  };
  also_by_strategy(options.sharding.offload_optimizer, config.strategy.optimizer);
  also_by_strategy(options.sharding.offload_parameters, config.strategy.parameter);
  if (options.sharding.uses_files() && options.sharding.offload_folder.empty())
    options.sharding.offload_folder = config.run;
  if (const StrategyEntry* entry = find_strategy(config.keys->strategies(), config.text("outer.type"))) {
    options.sharding.group = std::max(options.sharding.group, 1);
    options.strategy = [make = entry->make, settings = static_cast<const Settings&>(config)] { return make(settings); };
  }
  const bool scales = config.loss_scale.type == LossScaleConfig::Type::dynamic ||
                      (config.loss_scale.type == LossScaleConfig::Type::automatic &&
                       config.strategy.precision == Strategy::Precision::fp16);
  if (!scales) options.scaling = {};
  if (!scales && config.loss_scale.type != LossScaleConfig::Type::fixed) options.loss_scale = 1;
  return options;
}

std::string accumulation_note(const Sharded& engine) {
  const ShardedOptions& options = engine.options();
  const ShardingOptions& sharding = options.sharding;
  const bool waits = options.micro_batches > 1 && !sharding.reduces_each(options.micro_batches);
  if (shard_ranks(options, engine.size()) == 1 || sharding.virtual_ranks > 0 ||
      !kShardingStages[sharding.stage].gradients || !waits)
    return "";
  std::int64_t bytes = 0, largest = 0;
  for (const auto& unit : engine.units()) {
    bytes += unit->split().gradient_bytes();
    largest = std::max(largest, unit->split().gradient_bytes());
  }
  return concat("each rank keeps its whole gradients, ", binary_size(static_cast<double>(bytes)),
                ", until the last of ", options.micro_batches,
                " micro-batches; sharding.accumulation=each_backward keeps ", "one or two units of them, of ",
                binary_size(static_cast<double>(largest)), " at most, and sends more");
}

CollectiveRoute collective_route(const ShardingConfig& sharding, bool on_device) {
  using Nccl = CollectiveRoute::Nccl;
  CollectiveRoute route{.algorithm = find_algorithm_name(sharding.algorithm).algorithm};
  if (on_device && sharding.path != ShardingConfig::Path::host && why_no_nccl().empty())
    route.nccl = sharding.order == ReduceOrder::fast ? Nccl::gathers_and_adds : Nccl::gathers;
  return route;
}

DeviceCommunicator::DeviceCommunicator(const Config& config, const Context& context, Communicator& ranks)
    : ranks_(ranks) {
  if (ranks.size() == 1) return;
  const AlgorithmName& way = find_algorithm_name(config.sharding.algorithm);
  const bool on_processors = context.device().type == DeviceType::cpu;
  std::unique_ptr<Communicator> own = engine_ranks(way, config.sharding.tunes() && on_processors, ranks);
  if (on_processors) {
    own_ = std::move(own);
    return;
  }
  const std::string why_not = why_no_nccl();
  if (config.sharding.path == ShardingConfig::Path::nccl && !why_not.empty())
    throw Error(concat("sharding.path is nccl, but ", why_not), ErrorKind::unsupported);
  const CollectiveRoute route = collective_route(config.sharding, /*on_device=*/true);
  if (route.nccl == CollectiveRoute::Nccl::nothing) {
    own_ = make_staged_communicator(std::move(own));
    if (ranks.rank() == 0 && !why_not.empty())
      context.log(LogLevel::warning, concat("between GPUs everything goes through the processors' memory: ", why_not));
    return;
  }
  own_ = make_nccl_communicator(context, std::move(own),
                                {.algorithm = std::string(route.algorithm), .order = config.sharding.order});
}

}  // namespace keel
