#include "keel/trainer/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/algorithm_names.h"
#include "keel/dist/comm/algorithms.h"
#include "keel/dist/lab/student.h"
#include "keel/runtime/stopwatch.h"
#include "keel/trainer/compared_training.h"

namespace keel {
namespace {

// The element below which that fraction of all, which is less than 1, lies.
double quantile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(fraction * static_cast<double>(values.size()))];
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
  SkippedOfTraining skipped = {};
  std::int64_t sent = 0, sent_by_formula = 0, kept = 0, kept_by_formula = 0, window = 0;
  double exposed_ms = 0, step_ms = 0, p95_ms = 0, codec_ms = 0;
};

// What a training has sent: by strategies of communication, and otherwise.
struct SentSoFar {
  std::int64_t strategy, rest;

  static SentSoFar of(ComparedTraining& training) {
    const std::int64_t strategy = training.strategy_sent();
    return {strategy, training.sent() - strategy};
  }
};

// Trains the variant, so many steps.
Training train_variant(ComparedTraining& training, std::int64_t steps) {
  Training result{.kept = training.kept()};
  const RankPlan plan = training.plan();
  // Those after the first that are whole windows of a strategy: what it sends in others depends on how far each is.
  const std::int64_t window = plan.traffic.strategy_steps, whole = (steps - 1) / window * window;
  training.begin();
  std::vector<double> durations, waits, codecs;
  SentSoFar before{};
  std::int64_t in_windows = 0;
  std::map<std::int64_t, std::int64_t> evaluations;  // of steps after the first, by their micro-batches
  const auto take = [&](const RunSteps::Turn& turn) {
    if (!turn.outcome) return;
    result.loss = turn.outcome->loss;
    if (turn.outcome->step > 1) evaluations[turn.outcome->micro_batches] += turn.outcome->result.evaluations;
  };
  for (std::int64_t step = 0; step < steps; ++step) {
    if (step == 1) before = SentSoFar::of(training);
    const double began = milliseconds_now(), waited = training.waited_ms(), coded = training.engine().codec_ms();
    take(training.next());
    if (step == 0) continue;  // which makes what the others find
    durations.push_back(milliseconds_now() - began);
    waits.push_back(training.waited_ms() - waited);
    codecs.push_back(training.engine().codec_ms() - coded);
    if (step == whole) in_windows = training.strategy_sent() - before.strategy;
  }
  take(training.finish());
  result.sent = (SentSoFar::of(training).rest - before.rest) / (steps - 1);
  result.step_ms = quantile(durations, 0.5);
  result.p95_ms = quantile(durations, 0.95);
  result.exposed_ms = quantile(waits, 0.5);
  result.codec_ms = quantile(codecs, 0.5);
  result.kept_by_formula = plan.memory.kept();
  for (const auto& [micro_batches, times] : evaluations)
    result.sent_by_formula += times * training.plan(micro_batches).traffic.sent();
  result.sent_by_formula /= steps - 1;
  if (whole > 0) {
    result.sent += in_windows / whole;
    result.sent_by_formula += plan.traffic.strategy / window;
  } else {
    result.window = window;
  }
  result.skipped = training.skipped();
  result.fingerprint = training.fingerprint();
  return result;
}

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
  for (const std::string& change : variant.changes) all.push_back(concat("has ", change));
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
                  .skipped = first.skipped,
                  .sent = first.sent,
                  .sent_by_formula = first.sent_by_formula,
                  .kept = first.kept,
                  .kept_by_formula = first.kept_by_formula,
                  .window = first.window};
  std::vector<double> exposed, steps, p95, codec;
  for (const Training& training : trainings) {
    run.repeats = run.repeats && training.fingerprint == first.fingerprint && training.loss == first.loss &&
                  training.skipped == first.skipped;
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

std::vector<ComparedRun> compare(std::span<const Variant> variants, const CompareOptions& options,
                                 TrainObserver& observer, Communicator& given) {
  together(given, [&] { KEEL_CHECK(options.steps >= 2, "a comparison needs 2 steps at least, not ", options.steps); });
  if (variants.empty()) return {};
  const ComparedRanks ranks(given, options.network, variants.front().config);
  const LogSink log = [&](LogLevel level, std::string_view message) { observer.on_message(level, message); };
  std::vector<std::vector<Training>> trainings(variants.size());
  for (std::int64_t repeat = 0; repeat < options.repeats; ++repeat)
    for (std::size_t turn = 0; turn < variants.size(); ++turn) {
      const std::size_t at = (turn + static_cast<std::size_t>(repeat)) % variants.size();
      ComparedTraining training(variants[at].config, concat("compared: ", options.steps, "\n"), *ranks, log);
      trainings[at].push_back(train_variant(training, options.steps));
    }
  std::vector<ComparedRun> runs;
  for (std::size_t i = 0; i < variants.size() && options.repeats > 0; ++i)
    runs.push_back(summarise(variants[i], trainings[i], given.size()));
  return runs;
}

}  // namespace keel
