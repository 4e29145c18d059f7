#include "keel/trainer/compare.h"
#include "keel/runtime/stopwatch.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>

#include "keel/config/values.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/algorithm_names.h"
#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/exchange.h"
#include "keel/dist/comm/regroup.h"
#include "keel/dist/lab/sizes.h"
#include "keel/dist/lab/student.h"
#include "keel/dist/parallel/plan.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/make_task.h"
#include "keel/trainer/memory_check.h"
#include "keel/trainer/run_plan.h"
#include "keel/trainer/task_stacks.h"
#include "keel/trainer/training_step.h"

namespace keel {
namespace {

// The element below which that fraction of all lies.
double quantile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<std::size_t>(fraction * static_cast<double>(values.size())))];
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

const Algorithm& algorithm_of(const Config& config) {
  return find_algorithm(find_algorithm_name(config.sharding.algorithm).algorithm);
}

// What one training comes to.
struct Training {
  std::uint64_t fingerprint = 0;
  double loss = 0;
  std::int64_t sent = 0, sent_by_formula = 0, kept = 0, kept_by_formula = 0;
  double exposed_ms = 0, step_ms = 0, p95_ms = 0, codec_ms = 0;
};

// A training of one variant.
class Candidate {
 public:
  Candidate(const Config& config, TaskBase& task, const std::shared_ptr<const BatchSource>& source,
            const Context& context, Communicator& ranks)
      : context_(context),
        ranks_(ranks),
        device_ranks_(config, context, ranks),
        stacks_({.config = config,
                 .context = context,
                 .ranks = *device_ranks_,
                 .micro_batches = planned_micro_batches(config, ranks.size())},
                task, ranks),
        stack_(stacks_.main()),
        steps_({.model = stack_.model(),
                .loss = stacks_.loss(task),
                .engine = stack_.engine(),
                .ranks = ranks,
                .loader = source,
                .micro = config.batch.micro,
                .curves = stack_.curves(),
                .seed = config.seed,
                .unit = std::string(task.unit())},
               0) {}

  Training run(std::int64_t steps) {
    Training result;
    const MemoryReport memory = context_.memory();
    for (const Purpose purpose : {Purpose::parameter, Purpose::gradient, Purpose::optimizer})
      result.kept += static_cast<std::int64_t>(memory[purpose].current);
    stacks_.begin_with_weights(ranks_);
    std::vector<double> durations, waits, codecs;
    std::int64_t sent_before = 0, evaluations = 0;
    const auto take = [&](const TrainingSteps::Turn& turn) {
      if (!turn.outcome) return;
      result.loss = turn.outcome->loss;
      if (turn.outcome->step > 1) evaluations += turn.outcome->result.evaluations;
    };
    for (std::int64_t step = 0; step < steps; ++step) {
      if (step == 1) sent_before = sent();
      const double began = milliseconds_now(), waited = waited_ms(), coded = stack_.engine().codec_ms();
      take(steps_.next());
      if (step == 0) continue;  // which makes what the others find
      durations.push_back(milliseconds_now() - began);
      waits.push_back(waited_ms() - waited);
      codecs.push_back(stack_.engine().codec_ms() - coded);
    }
    take(steps_.finish());
    result.sent = (sent() - sent_before) / (steps - 1);
    result.step_ms = quantile(durations, 0.5);
    result.p95_ms = quantile(durations, 0.95);
    result.exposed_ms = quantile(waits, 0.5);
    result.codec_ms = quantile(codecs, 0.5);
    const RankPlan plan = stacks_.plan();
    result.kept_by_formula = plan.memory.kept();
    result.sent_by_formula = plan.traffic.sent() * evaluations / (steps - 1);
    const Sharded& engine = stack_.engine();
    const std::uint64_t mine = engine.holds_parts() ? fingerprint(engine.weights()) : 0;
    for (const std::uint64_t theirs : gather_values(ranks_, mine)) result.fingerprint += theirs;
    return result;
  }

 private:
  // What is still under way belongs to the step before.
  double waited_ms() const { return steps_.waited_ms() + stacks_.waited_ms(); }

  std::int64_t sent() {
    for (const auto& unit : stack_.engine().units()) unit->parameters().wait_gathered();
    return stacks_.data_sent();
  }

  const Context& context_;
  Communicator& ranks_;
  DeviceCommunicator device_ranks_;
  TaskStacks stacks_;
  Stack& stack_;
  TrainingSteps steps_;
};

// Strategies, buckets and accumulation of one kind leave the sums as they are: by rank, rounded once.
std::vector<std::string> decisive_of(const Variant& variant, int ranks) {
  const Config& config = variant.config;
  const Compression& compression = config.gradient_compression;
  const Algorithm& algorithm = algorithm_of(config);
  std::vector<std::string> all = {concat("computes in ", name_of(config.strategy.precision))};
  if (algorithm.order == algorithms().front()->order) all.emplace_back("adds by rank in one sum");
  else
    all.push_back(concat("adds partial sums by ", algorithm.name, variant.base == algorithm.name ? "" : ", as ",
                         variant.base == algorithm.name ? "" : variant.base));
  const bool compresses = compression.type != Compression::Type::none;
  all.push_back(compresses ? concat("sends gradients as ", compression.kind().name) : "sends gradients as they are");
  if (compression.type == Compression::Type::top_k) all.back() += concat(", fraction ", compression.fraction);
  if (compression.type == Compression::Type::qgz && compression.bits == Compression::Bits::eight)
    all.back() += ", 8 bits";
  if (compression.type == Compression::Type::power_sgd) all.back() += concat(", rank ", compression.rank);
  const std::int64_t group = config.sharding.group;
  const bool has_groups =
      group != 0 && group != ranks && kShardingStages[stage_number(config.strategy.stage)].optimizer;
  all.push_back(has_groups ? concat("adds inside groups of ", group, " ranks first") : "adds all ranks at once");
  return all;
}

ComparedRun summarise(const Variant& variant, const std::vector<Training>& trainings, int ranks) {
  const Training& first = trainings.front();
  ComparedRun run{.name = variant.name,
                  .base = variant.base,
                  .compresses = variant.config.gradient_compression.type != Compression::Type::none,
                  .fingerprint = first.fingerprint,
                  .decisive = decisive_of(variant, ranks),
                  .loss = first.loss,
                  .sent = first.sent,
                  .sent_by_formula = first.sent_by_formula,
                  .kept = first.kept,
                  .kept_by_formula = first.kept_by_formula};
  std::vector<double> exposed, steps, p95, codec;
  for (const Training& training : trainings) {
    run.repeats = run.repeats && training.fingerprint == first.fingerprint && training.loss == first.loss;
    exposed.push_back(training.exposed_ms);
    steps.push_back(training.step_ms);
    p95.push_back(training.p95_ms);
    codec.push_back(training.codec_ms);
  }
  run.exposed_ms = mean_of(exposed);
  run.step_ms = mean_of(steps);
  run.p95_ms = mean_of(p95);
  run.codec_ms = mean_of(codec);
  const auto n = static_cast<std::int64_t>(steps.size());
  if (n == 1) return run;
  double squares = 0;
  for (const double each : steps) squares += (each - run.step_ms) * (each - run.step_ms);
  run.confidence_ms = lab::student_quantile(n - 1) * std::sqrt(squares / static_cast<double>((n - 1) * n));
  return run;
}

// The variants so far, each with each of the choices.
template <class Set>
std::vector<Variant> multiply(const std::vector<Variant>& variants, const std::vector<std::string>& choices,
                              const Set& set) {
  if (choices.empty()) return variants;
  std::vector<Variant> more;
  for (const Variant& variant : variants)
    for (const std::string& choice : choices) {
      const std::string name = concat(variant.name, variant.name.empty() ? "" : " ", choice);
      more.push_back({name, variant.config, name});
      set(more.back().config, choice);
    }
  return more;
}

void set_strategy(Config& config, const std::string& name) {
  config.strategy = parse_strategy(name);
  KEEL_CHECK(config.strategy.precision != Strategy::Precision::automatic, "strategy ", name,
             " leaves the numbers open; name them, as in ", name, "-fp32");
}

void set_algorithm(Config& config, const std::string& name) {
  const AlgorithmName& way = find_algorithm_name(name);
  KEEL_CHECK(!way.algorithm.empty(), "training does not use '", name, "', ", way.meaning);
  config.sharding.algorithm = way.name;
}

void set_bucket(Config& config, const std::string& size) {
  const std::int64_t bytes = lab::parse_size(size);
  KEEL_CHECK(bytes > 0, "a bucket needs a size above 0");
  config.sharding.bucket = bytes;
  config.sharding.first_bucket = std::min(config.sharding.first_bucket, config.sharding.bucket);
}

// "topk:0.01" as the configuration would say it, so that it is checked as if it were there.
void set_compression(Config& config, const std::string& text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string kind = text.substr(0, colon), number = text.substr(std::min(colon + 1, text.size()));
  std::string setting = concat("gradient_compression={type: ", text_to_yaml(kind));
  if (colon < text.size())
    setting += concat(kind == "powersgd" ? ", rank: "
                      : kind == "qgz"    ? ", bits: "
                                         : ", fraction: ",
                      text_to_yaml(number));
  config = parse_config(config.keys, to_yaml(config), concat("--compression ", text), {setting + '}'});
}

}  // namespace

NetGain net_gain(const ComparedRun& plain, const ComparedRun& compressed) {
  const double saved_ms = plain.step_ms - compressed.step_ms;
  const double chance_ms = std::hypot(plain.confidence_ms, compressed.confidence_ms);
  const auto saved_bytes = static_cast<double>(plain.sent - compressed.sent);
  NetGain gain{.is_gain = saved_ms > chance_ms, .is_loss = -saved_ms > chance_ms};
  if (plain.step_ms > 0) gain.fraction = saved_ms / plain.step_ms;
  if (saved_bytes > 0 && compressed.codec_ms > 0) gain.pays_below = 1e3 * saved_bytes / compressed.codec_ms;
  return gain;
}

std::vector<Variant> variants_of(const Config& config, const CompareAxes& axes) {
  std::vector<Variant> variants = {{"", config}};
  variants = multiply(variants, axes.strategies, set_strategy);
  variants = multiply(variants, axes.algorithms, set_algorithm);
  variants = multiply(variants, axes.buckets, set_bucket);
  std::vector<std::string> compressions = axes.compressions;
  if (!compressions.empty() && std::find(compressions.begin(), compressions.end(), "none") == compressions.end())
    compressions.insert(compressions.begin(), "none");
  const std::vector<Variant> bases = variants;
  variants = multiply(bases, compressions, set_compression);
  for (std::size_t i = 0; i < variants.size() && !compressions.empty(); ++i)
    variants[i].base = bases[i / compressions.size()].name;
  if (variants.front().name.empty()) variants.front().name = variants.front().base = to_string(config.strategy);
  return variants;
}

std::vector<ComparedRun> compare(std::span<const Variant> variants, const CompareOptions& options,
                                 TrainObserver& observer, Communicator& given) {
  std::unique_ptr<Communicator> slow, background;
  Communicator* ranks = &given;
  if (options.link.is_slow() && given.size() > 1) ranks = (slow = given.regroup({.link = options.link})).get();
  if (!variants.empty()) background = make_background(variants.front().config, *ranks);
  if (background) ranks = background.get();
  const LogSink log = [&](LogLevel level, std::string_view message) { observer.on_message(level, message); };
  std::vector<std::vector<Training>> trainings(variants.size());
  for (std::int64_t repeat = 0; repeat < options.repeats; ++repeat)
    for (std::size_t turn = 0; turn < variants.size(); ++turn) {
      const std::size_t at = (turn + static_cast<std::size_t>(repeat)) % variants.size();
      Config config = variants[at].config;  // its steps stay those of the run, whose schedule this begins
      config.checkpoint.async = false;      // it makes none
      std::optional<Context> context;
      std::unique_ptr<TaskBase> task;
      Data data;
      together(*ranks, [&] {
        KEEL_CHECK(options.steps >= 2, "a comparison needs 2 steps at least, not ", options.steps);
        planned_micro_batches(config, ranks->size());
        context.emplace(make_context(config, *ranks, log));
        task = make_task(config, context->host());
        data = open_training_data(config, *task);
      });
      check_memory(config, *task, *ranks, *context);
      check_agreement(*ranks, concat(to_yaml(config), "compared: ", options.steps, "\n"),
                      "ranks were given different configurations");
      trainings[at].push_back(Candidate(config, *task, data.training, *context, *ranks).run(options.steps));
    }
  std::vector<ComparedRun> runs;
  for (std::size_t i = 0; i < variants.size() && options.repeats > 0; ++i)
    runs.push_back(summarise(variants[i], trainings[i], ranks->size()));
  return runs;
}

}  // namespace keel
