#include "keel/trainer/run_plan.h"

#include <algorithm>
#include <filesystem>

#include "keel/data/batch.h"
#include "keel/dist/comm/algorithm_names.h"
#include "keel/optim/catalog.h"
#include "keel/runtime/json.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/metrics.h"
#include "keel/trainer/run_folder.h"
#include "keel/trainer/task.h"

namespace keel {

std::int64_t planned_vocabulary(const Config& config) {
  if (config.model.vocabulary > 0) return config.model.vocabulary;
  if (config.data.type == DataConfig::Type::text && config.data.tokenizer == DataConfig::Tokenizer::byte)
    return ByteTokenizer().vocabulary_size();
  return open_task(config, Context::create({.threads = 1})).vocabulary;
}

ModelSize measure_model(const Config& config, std::int64_t vocabulary) {
  ModelSize size;
  Gpt model(gpt_options(config, vocabulary));
  for (const FlatBuffer& unit : lay_out(model)) {
    size.parameters += unit.numel;
    ++size.units;
    if (unit.numel <= size.largest_unit) continue;
    size.largest_unit = unit.numel;
    size.largest_name = name_of_unit(unit);
  }
  return size;
}

std::int64_t planned_micro_batches(const Config& config, int ranks) {
  return static_cast<std::int64_t>(divide_rows(config.batch.global, config.batch.micro, 0, ranks).size());
}

namespace {

// What formulas need to know of a configured run.
struct PlannedRun {
  PlannedRun(const Config& config, int ranks, std::int64_t vocabulary, bool on_processor)
      : model(gpt_options(config, vocabulary)),
        options(engine_options(config, planned_micro_batches(config, ranks), model)),
        optimizer(make_optimizer(config)),
        layout(lay_out(model, shard_ranks(options.sharding, ranks), optimizer->block())) {
    if (on_processor || config.device == "cpu") options.sharding.offload_optimizer = false;
  }
  Gpt model;
  ShardedOptions options;
  std::unique_ptr<Optimizer> optimizer;
  std::vector<FlatBuffer> layout;
};

// Milliseconds of a step in a record that follows another one by so many steps and tokens; 0: it does not say.
double step_time(const Json& record, std::int64_t steps, double tokens) {
  if (const Json* const time = record.find("step_ms")) return time->is_number() ? time->number() : 0;
  const Json& rate = record.at("tokens_per_s");
  return rate.is_number() && rate.number() > 0 ? 1e3 * tokens / static_cast<double>(steps) / rate.number() : 0;
}

}  // namespace

RankPlan plan_run(const Config& config, int ranks, std::int64_t vocabulary, bool on_processor) {
  const PlannedRun run(config, ranks, vocabulary, on_processor);
  return plan_rank(run.layout, *run.optimizer, run.options, ranks, 0,
                   find_algorithm_name(config.sharding.algorithm).algorithm);
}

std::vector<TraceNode> trace_run(const Config& config, int ranks, int rank, std::int64_t vocabulary) {
  const PlannedRun run(config, ranks, vocabulary, false);
  const RowRange rows = divide_rows(config.batch.global, config.batch.micro, rank, ranks).front();
  return trace_step(run.layout, *run.optimizer, run.options, ranks, rank, (rows.end - rows.begin) * config.model.block);
}

std::optional<MeasuredRun> read_measured_run(const std::string& path) {
  const RunFolder folder(path);
  if (!std::filesystem::exists(folder.metrics()) || !std::filesystem::exists(folder.config())) return std::nullopt;
  MeasuredRun run;
  bool ended = false;
  std::int64_t step = 0, steps = 0, sent = 0;  // the last record's, and sums over those after the first
  bool sends = false;
  std::int64_t timed_step = 0;
  double timed_tokens = 0;
  for (const Json& record : read_metrics(folder.metrics())) {
    const std::int64_t now = record.at("step").integer();
    if (const Json* const sent_bytes = record.find("sent_bytes")) {
      // Bytes in a step, on average since the record before. What the first step shares out is counted in the second.
      if (sends && now > step) {
        steps += now - step;
        sent += sent_bytes->integer() * (now - step);
      }
      sends = true;
      step = now;
    }
    if (record.contains("tokens_per_s") && record.contains("tokens")) {
      const double tokens = record.at("tokens").number(),
                   step_ms = step_time(record, now - timed_step, tokens - timed_tokens);
      const Json* const exposed = record.find("exposed_ms");
      if (timed_step > 0 && now > timed_step && step_ms > 0)
        run.times.push_back({step_ms, exposed == nullptr ? 0 : exposed->number()});
      timed_step = now;
      timed_tokens = tokens;
    }
    if (!record.contains("peak_parameter_bytes")) continue;
    ended = true;
    run.parameter = record.at("peak_parameter_bytes").integer();
    run.gradient = record.at("peak_gradient_bytes").integer();
    run.optimizer = record.at("peak_optimizer_bytes").integer();
    run.buckets = record.at("peak_bucket_bytes").integer();
  }
  if (!ended) return std::nullopt;
  run.config = load_config(folder.config());
  const bool evaluates_once = find_optimizer(run.config.optimizer.type).make == nullptr;
  if (steps > 0 && evaluates_once) run.sent = sent / steps;
  while (std::filesystem::exists(folder.log(run.ranks))) ++run.ranks;
  return run;
}

}  // namespace keel
