#include "keel/trainer/compare.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/dist/parallel/plan.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/task.h"
#include "keel/trainer/training_step.h"

namespace keel {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double milliseconds_now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The training under one strategy.
class Candidate {
 public:
  Candidate(const Config& config, const Task& task, const Context& context, Communicator& ranks)
      : context_(context),
        ranks_(ranks),
        micro_batches_(divide_rows(config.batch.global, config.batch.micro, ranks.rank(), ranks.size())),
        model_(gpt_options(config, task.vocabulary)),
        device_ranks_(config, context, ranks),
        engine_(model_, context, *device_ranks_, make_optimizer(config),
                engine_options(config, static_cast<std::int64_t>(micro_batches_.size()))),
        steps_({.model = model_,
                .engine = engine_,
                .ranks = ranks,
                .loader = task.training,
                .micro_batches = micro_batches_,
                .curves = make_curves(config, context),
                .seed = config.seed},
               0) {}

  ComparedStrategy run(std::int64_t steps) {
    ComparedStrategy result;
    const MemoryReport memory = context_.memory();
    for (const Purpose purpose : {Purpose::parameter, Purpose::gradient, Purpose::optimizer})
      result.kept += static_cast<std::int64_t>(memory[purpose].current);
    std::vector<double> durations, waits;
    std::int64_t sent_before = 0;
    for (std::int64_t step = 0; step < steps; ++step) {
      if (step == 1) sent_before = sent();
      const double began = milliseconds_now(), waited = engine_.waited_ms();
      if (const auto turn = steps_.next(); turn.outcome) result.loss = turn.outcome->loss;
      durations.push_back(milliseconds_now() - began);
      waits.push_back(engine_.waited_ms() - waited);
    }
    if (const auto turn = steps_.finish(); turn.outcome) result.loss = turn.outcome->loss;
    result.sent = (sent() - sent_before) / (steps - 1);
    result.step_ms = median(durations);
    result.exposed_ms = median(waits);
    compute_formulas(result);
    const std::uint64_t mine = engine_.holds_parts() ? fingerprint(engine_.weights()) : 0;
    for (const std::uint64_t theirs : gather_values(ranks_, mine)) result.fingerprint += theirs;
    return result;
  }

 private:
  // What is still under way belongs to the step before.
  std::int64_t sent() {
    for (const auto& unit : engine_.units()) unit->wait_gathered();
    return engine_.data_traffic().sent();
  }

  void compute_formulas(ComparedStrategy& result) {
    ShardedOptions options = engine_.options();
    if (context_.device().type == DeviceType::cpu) options.sharding.offload_optimizer = false;  // it is there already
    const std::vector<FlatBuffer> layout = lay_out(model_, shard_ranks(options.sharding, ranks_.size()));
    const RankPlan plan = plan_rank(layout, engine_.optimizer(), options, ranks_.size(), ranks_.rank());
    result.sent_by_formula = plan.traffic.sent();
    result.kept_by_formula = plan.memory.kept();
  }

  const Context& context_;
  Communicator& ranks_;
  std::vector<RowRange> micro_batches_;
  Gpt model_;
  DeviceCommunicator device_ranks_;
  Sharded engine_;
  TrainingSteps steps_;
};

}  // namespace

std::vector<ComparedStrategy> compare_strategies(const Config& config, std::span<const std::string> strategies,
                                                 std::int64_t steps, TrainObserver& observer, Communicator& given) {
  const std::unique_ptr<Communicator> background = make_background(config, given);
  Communicator& ranks = background ? *background : given;
  const LogSink log = [&](LogLevel level, std::string_view message) { observer.on_message(level, message); };
  std::vector<ComparedStrategy> results;
  for (const std::string& name : strategies) {
    Config candidate = config;  // its steps stay those of the run, whose schedule this is the beginning of
    std::optional<Context> context;
    std::optional<Task> task;
    together(ranks, [&] {
      KEEL_CHECK(steps >= 2, "a comparison needs 2 steps at least, not ", steps);
      candidate.strategy = parse_strategy(name);
      KEEL_CHECK(candidate.strategy.precision != Strategy::Precision::automatic, "strategy ", name,
                 " leaves the numbers open; name them, as in ", name, "-fp32");
      divide_rows(config.batch.global, config.batch.micro, ranks.rank(), ranks.size());
      context.emplace(make_context(candidate, ranks, log));
      task.emplace(open_task(candidate, context->host()));
    });
    check_agreement(ranks, concat(to_yaml(candidate), "compared: ", steps, "\n"),
                    "ranks were given different configurations");
    results.push_back(Candidate(candidate, *task, *context, ranks).run(steps));
    results.back().name = name;
  }
  return results;
}

}  // namespace keel
