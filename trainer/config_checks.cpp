// What the values of a configuration ask of each other.

#include <algorithm>
#include <functional>
#include <set>

#include "keel/dist/comm/algorithm_names.h"
#include "keel/dist/comm/algorithms.h"
#include "keel/dist/parallel/engine_rules.h"
#include "keel/kernels/update.h"
#include "keel/optim/catalog.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/config_resolver.h"
#include "keel/trainer/learning_rate.h"
#include "keel/trainer/tracker_config.h"

namespace keel {

bool ConfigResolver::is_read_through(std::string_view key) {
  is_deepspeeds_ |= key == "optimizer.params";
  return key == "scheduler.params" || key == "optimizer.params";
}

void ConfigResolver::check_task() {
  const TaskEntry& task = *config_.keys->tasks().find(config_.task);
  const bool has_all =
      std::none_of(task.rows.begin(), task.rows.end(), [&](const KeyRow& row) { return broken().contains(row.key); });
  if (task.complain == nullptr || !has_all) return;
  for (const SettingsComplaint& each : task.complain(config_)) require(false, each.keys, each.message);
}

void ConfigResolver::check_strategy() {
  const Strategy& strategy = config_.strategy;
  if (const Given* given = find("strategy"); given != nullptr && !broken().contains("strategy")) {
    const WrittenStrategy written = read_strategy(given->value.text);
    const Strategy::Precision said = written.strategy.precision;
    if (written.says_precision && said != Strategy::Precision::automatic && said != strategy.precision)
      return require(false, {"precision", "strategy"},
                     concat(name_of(strategy.precision), " contradicts the strategy ", given->value.text,
                            ", which says ", name_of(said), "; remove one of the two"));
  }
  const auto agree = [&](Residence residence, Strategy::Offload place, std::string_view key) {
    require(residence == Residence::device || place == Strategy::Offload::none || residence == residence_of(place),
            {key, "strategy"},
            concat(name_of(residence), " contradicts the strategy ", to_string(strategy), ", which says ",
                   name_of(residence_of(place)), "; remove one of the two"));
  };
  agree(config_.sharding.offload_optimizer, strategy.optimizer, "sharding.offload_optimizer");
  agree(config_.sharding.offload_parameters, strategy.parameter, "sharding.offload_parameters");
  const std::string missing = why_not_offered(strategy);
  const bool is_precision = strategy.precision == Strategy::Precision::fp8 && find("precision") != nullptr;
  require(missing.empty(), {"strategy", "precision"}, missing, ErrorKind::unsupported,
          is_precision ? "precision" : "strategy");
  if (!missing.empty() || strategy.precision == Strategy::Precision::automatic) return;
  const std::string conflict = conflict_of_gradients(precision_policy(config_));
  require(conflict.empty(), {"sharding.gradient", "strategy", "precision"}, conflict, ErrorKind::unsupported);
}

// What does not fit together is reported where the key, or else one that it depends on, was last given.
void ConfigResolver::check_schedule_of_rates() {
  constexpr std::int64_t kLargest = std::int64_t{1} << 53;
  const SchedulerConfig& scheduler = config_.scheduler;
  require(scheduler.frequency <= kLargest / std::max<std::int64_t>(scheduler.steps_per_epoch, 1),
          {"scheduler.frequency", "scheduler.steps_per_epoch"},
          concat("times scheduler.steps_per_epoch makes more than ", kLargest, " steps"));
  if (config_.epochs > 0) return;  // see measure_lengths()
  for (const std::string& key : broken())
    if (key == "steps" || key == "epochs" || key == "optimizer.lr" || key == "optimizer.type" ||
        is_inside(key, "scheduler"))
      return;
  for (const ScheduleComplaint& complaint : check_learning_rates(config_)) {
    const std::string key = concat("scheduler.", complaint.where.substr(0, complaint.where.find('[')));
    const bool is_rate = key == "scheduler.min_lr";
    require(false, {key, is_rate ? "optimizer.lr" : "scheduler.steps", is_rate ? "optimizer.lr" : "steps"},
            complaint.message, ErrorKind::input, concat("scheduler.", complaint.where));
  }
}

void ConfigResolver::check_optimizer() {
  const OptimizerConfig& optimizer = config_.optimizer;
  if (broken().contains("optimizer.type")) return;
  require(!optimizer.nesterov || optimizer.dampening == 0, {"optimizer.nesterov", "optimizer.dampening"},
          "needs optimizer.dampening 0");
  const OptimizerEntry& entry = find_optimizer(optimizer.type);
  require(
      !is_deepspeeds_ || entry.name != "Adam" || optimizer.weight_decay == 0,
      {"optimizer.type", "optimizer.weight_decay"},
      "Adam with params is DeepSpeed's, which decays the weights themselves unless adam_w_mode is false; say AdamW for "
      "that, or leave out params for a decay that is part of the gradient");
  if (entry.has("etas")) {
    const std::string problem = problem_of(entry.settings(optimizer));
    require(problem.empty(), {"optimizer.etas", "optimizer.step_sizes"}, problem);
  }
  require(!entry.has("max_coeff") || optimizer.min_coeff <= optimizer.max_coeff,
          {"optimizer.min_coeff", "optimizer.max_coeff"}, "must not be above optimizer.max_coeff");
  if (entry.has("relative_step")) {
    require(!optimizer.relative_step || optimizer.lr == 1, {"optimizer.lr", "optimizer.relative_step"},
            "does not go together with optimizer.relative_step, which makes the rate; leave lr out, or turn it off");
    require(optimizer.relative_step || find("optimizer.lr") != nullptr, {"optimizer.relative_step"},
            "without it optimizer.lr is needed");
    require(!optimizer.warmup_init || optimizer.relative_step, {"optimizer.warmup_init", "optimizer.relative_step"},
            "needs optimizer.relative_step");
    require(optimizer.epsilons[0] > 0, {"optimizer.epsilons"}, "the first must be above 0");
  }
  check_requirements(entry);
  const bool decays = std::any_of(optimizer.groups.begin(), optimizer.groups.end(),
                                  [](const GroupPattern& group) { return group.weight_decay.value_or(0) != 0; });
  try {
    if (const auto variants = group_options(config_); !variants.empty())
      (void)make_optimizer(entry, optimizer, config_.seed, variants);
  } catch (const Error& error) { require(false, {"optimizer.groups", "optimizer.type"}, error.what()); }
  require(!decays || entry.has("weight_decay"), {"optimizer.groups", "optimizer.type"},
          concat("a group has a weight decay, but ", entry.name, " has none"));
}

void ConfigResolver::check_requirements(const OptimizerEntry& entry) {
  const Config& c = config_;
  const SettledRequirements& needs = entry.requirements;
  const auto refuse = [&](bool holds, std::string_view key, std::string_view why) {
    require(holds, {key, "optimizer.type"}, concat("does not go together with ", entry.name, ": ", why));
  };
  if (needs.pure_gradient) {
    refuse(c.clip == 0, "clip", "gradients are compared with each other, and must not be clipped; set it to 0");
    refuse(!c.gradient_compression.kind().feedback, "gradient_compression.type",
           concat("what ", c.gradient_compression.kind().name, " leaves out depends on the steps before"));
    refuse(c.strategy.precision != Strategy::Precision::fp16, "strategy", "fp16 needs a loss scale that skips steps");
    refuse(c.loss_scale.type != LossScaleConfig::Type::dynamic, "loss_scale.type", "a dynamic loss scale skips steps");
  }
  if (needs.one_vector) {
    refuse(c.optimizer.groups.empty(), "optimizer.groups", "all parameters are one vector");
    refuse(c.optimizer.layer_decay == 1, "optimizer.layer_decay", "all parameters are one vector");
  }
  const bool is_offloaded = c.sharding.offloads_optimizer() || c.strategy.optimizer != Strategy::Offload::none;
  if (needs.host_memory)
    refuse(c.device == "auto" || c.device == "cpu" || is_offloaded, "device",
           "it works in the processor's memory alone; set sharding.offload_optimizer to host");
  if (needs.closure) refuse(!c.cuda_graph, "cuda_graph", "the evaluations of a step are not recorded");
}

void ConfigResolver::check_compression() {
  constexpr std::string_view kKey = "gradient_compression.type";
  const CompressionKind& kind = config_.gradient_compression.kind();
  require(
      !kind.wire || !config_.sharding.wire, {kKey, "sharding.wire"},
      concat(kind.name, " says in which numbers gradients travel, and so does sharding.wire; remove one of the two"));
  const bool is_coded = kind.feedback || kind.codec;
  const bool codes_groups = kind.feedback && kind.codec && config_.text("outer.type") == "none";
  require(!is_coded || codes_groups || config_.sharding.group == 0, {kKey, "sharding.group"},
          concat(kind.name, " is not offered with groups of ranks",
                 kind.feedback && kind.codec ? " that take outer steps"
                                             : ": across groups gradients travel as codes of int8, int4 or topk"));
  require(!config_.sharding.secondary || config_.sharding.subgroup > 0, {"sharding.secondary", "sharding.subgroup"},
          "secondary shards are those of subgroups; set sharding.subgroup to the ranks of a node");
}

// What the engine and the trainer's collectives say of virtual ranks, where each key was given.
void ConfigResolver::check_virtual_ranks() {
  constexpr std::string_view kKey = "sharding.virtual_ranks";
  const ShardingConfig& sharding = config_.sharding;
  if (sharding.virtual_ranks == 0 || broken().contains(std::string(kKey))) return;
  require(is_number_of_virtual_ranks(sharding.virtual_ranks), {kKey}, "must be a power of two: 1, 2, 4, 8 ...");
  const auto refuse = [&](bool holds, std::string_view key, std::string_view why) {
    require(holds, {key, kKey}, concat("does not go together with sharding.virtual_ranks: ", why));
  };
  ShardedOptions options{.wire = sharding.wire, .compression = config_.gradient_compression, .sharding = sharding};
  if (config_.text("outer.type") != "none") options.strategy = [] { return nullptr; };  // there is one, that is all
  for (const VirtualRankConflict& each :
       conflicts_of_virtual_ranks(options, find_optimizer(config_.optimizer.type).requirements))
    refuse(false, each.key, each.why);
  refuse(!config_.cuda_graph, "cuda_graph", "what a rank computes in turn is not recorded");
  refuse(sharding.order == ReduceOrder::written, "sharding.order", "NCCL adds in an order of its own");
  refuse(adds_pairwise(find_algorithm(find_algorithm_name(sharding.algorithm).algorithm)), "sharding.algorithm",
         concat(sharding.algorithm, " does not add pairs of ranks, and pairs of pairs; take ordered"));
}

void ConfigResolver::check_outer() {
  if (broken().contains("outer.type")) return;
  const StrategyEntry* entry = find_strategy(config_.keys->strategies(), config_.text("outer.type"));
  if (entry == nullptr) return;
  constexpr std::string_view kKey = "outer.type";
  require(config_.ema.decay == 0, {kKey, "ema.decay"}, "groups have weights of their own, of which no average is kept");
  require(config_.swa.start.is_none(), {kKey, "swa.start"},
          "groups have weights of their own, of which no average is kept");
  require(!find_optimizer(config_.optimizer.type).requirements.closure, {kKey, "optimizer.type"},
          concat(config_.optimizer.type, " evaluates the loss of all ranks several times in a step"));
  require(!find_optimizer(config_.optimizer.type).requirements.averages, {kKey, "optimizer.type"},
          concat(config_.optimizer.type,
                 " trains at other weights than it has, and groups tell each other one of the two"));
  if (std::ranges::any_of(entry->rows, [&](const KeyRow& row) { return broken().contains(row.key); })) return;
  try {
    (void)entry->make(config_);
  } catch (const Error& error) { require(false, {kKey}, error.what()); }
}

// Adafactor makes its own rate, so one that a file has for another optimizer does not apply to it.
void ConfigResolver::leave_out_replaced_rate() {
  const Given* rate = find("optimizer.lr");
  if (rate == nullptr || broken().contains("optimizer.lr") || broken().contains("optimizer.type")) return;
  const bool makes_own = find_optimizer(config_.optimizer.type).has("relative_step") && config_.optimizer.relative_step;
  if (!makes_own || replacement_of("optimizer.type", *rate) == nullptr) return;
  config_.optimizer.lr = 1;
  leave_out(*rate, concat("does not apply where ", config_.optimizer.type, " has relative_step"));
}

void ConfigResolver::check_callbacks() {
  const Config& c = config_;
  const auto check_rules = [&](std::string_view key, std::string_view mode_key, const std::vector<std::string>& rules,
                               MetricMode mode) {
    for (const std::string& text : rules) {
      const MetricRule rule = MetricRule::parse(text, mode);
      for (const MetricTerm& term : rule.terms())
        require(term.mode != MetricMode::automatic || mode_by_name(term.metric), {key, mode_key},
                concat("the name ", term.metric, " does not say whether smaller values are better; say ", mode_key,
                       ": min or max, or ", term.metric, ":min or ", term.metric, ":max"));
    }
    const std::set<std::string> different(rules.begin(), rules.end());
    require(different.size() == rules.size(), {key}, "has a rule twice");
  };
  check_rules("checkpoint.best", "checkpoint.best_mode", c.checkpoint.best, c.checkpoint.best_mode);
  const EarlyStoppingConfig& stopping = c.early_stopping;
  if (stopping.stops()) {
    check_rules("early_stopping.metric", "early_stopping.mode", stopping.metrics, stopping.mode);
    require(stopping.patience.size() == 1 || stopping.patience.size() == stopping.metrics.size(),
            {"early_stopping.patience", "early_stopping.metric"},
            concat("expects one number, or one for each of the ", stopping.metrics.size(), " rules, and has ",
                   stopping.patience.size()));
    require(std::ranges::count(stopping.patience, 0) == 0, {"early_stopping.patience"},
            "a rule needs a patience of 1 at least");
  }
  require(c.ema.decay == 0 || c.swa.start.is_none() || !c.ema.evaluates || !c.swa.evaluates,
          {"swa.evaluate", "ema.evaluate"}, "evaluations are of one average; set this or ema.evaluate to false");
}

void ConfigResolver::check_curriculum() {
  using Type = CurriculumConfig::Type;
  const CurriculumConfig& c = config_.curriculum;
  if (c.type == Type::none) return;
  require(!config_.cuda_graph, {"curriculum.type", "cuda_graph"},
          "does not go together with cuda_graph, which repeats batches of one length");
  if (c.type == Type::fixed_discrete) {
    require(
        !c.lengths.empty() && c.until.size() + 1 == c.lengths.size(), {"curriculum.until", "curriculum.lengths"},
        concat("expects a step for each of the ", c.lengths.size(), " lengths but the last, and has ", c.until.size()));
    const std::string problem = problem_of(c);
    return require(problem.empty(), {"curriculum.until"}, problem);
  }
  require(c.min_length % c.multiple == 0, {"curriculum.min_length", "curriculum.multiple"},
          concat("must be a multiple of curriculum.multiple, ", c.multiple));
  require(c.max_length == 0 || c.max_length >= c.min_length, {"curriculum.max_length", "curriculum.min_length"},
          concat("must not be below curriculum.min_length, ", c.min_length));
}

void ConfigResolver::check_together() {
  const Config& c = config_;
  leave_out_replaced_rate();
  check_task();
  check_schedule_of_rates();
  require(c.log.trace.is_none() || c.profile.steps.is_none(), {"profile.steps", "log.trace"},
          "does not go together with log.trace, which is another window; leave one of them out");
  require(!c.optimizer.nesterov || c.optimizer.momentum > 0, {"optimizer.nesterov", "optimizer.momentum"},
          "needs optimizer.momentum above 0");
  check_optimizer();
  check_curriculum();
  require(!c.optimizer.stochastic_rounding || c.strategy.precision == Strategy::Precision::bf16,
          {"optimizer.stochastic_rounding", "strategy"}, "needs strategy bf16: weights in fp32 are not rounded");
  check_strategy();
  check_compression();
  check_virtual_ranks();
  check_outer();
  try {
    (void)make_trackers(c.trackers);
  } catch (const Error& error) { require(false, {"tracker"}, error.what()); }
  check_callbacks();
}

}  // namespace keel
