#include "keel/trainer/run_plan.h"

#include <algorithm>
#include <filesystem>

#include "keel/data/divide_rows.h"
#include "keel/dist/checkpoint/memory_copies.h"
#include "keel/optim/catalog.h"
#include "keel/runtime/file.h"
#include "keel/runtime/json.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/metrics.h"
#include "keel/trainer/run_folder.h"
#include "keel/trainer/stack.h"

namespace keel {

ModelSize measure_model(const StackModels& models) {
  ModelSize size;
  for (const StackModel& model : models.all())
    for (const FlatBuffer& unit : lay_out(*model.module)) {
      size.parameters += unit.numel;
      if (unit.trainable && !model.frozen) size.trained += unit.numel;
      ++size.units;
      if (unit.numel <= size.largest_unit) continue;
      size.largest_unit = unit.numel;
      size.largest_name = concat(model.name, model.name.empty() ? "" : ": ", name_of_unit(unit));
    }
  return size;
}

std::int64_t planned_micro_batches(const Config& config, int ranks) {
  const int dealt_to = config.sharding.dealt_to(ranks);
  KEEL_CHECK(config.batch.global >= dealt_to, "a global batch of ", config.batch.global, " rows is too small for ",
             dealt_to, dealt_to == ranks ? " ranks" : " virtual ranks (sharding.virtual_ranks)");
  return static_cast<std::int64_t>(divide_rows(config.batch.global, config.batch.micro, 0, dealt_to).size());
}

namespace {

// Milliseconds of a step in a record that follows another one by so many steps and tokens; 0: it does not say.
double step_time(const Json& record, std::int64_t steps, double tokens) {
  if (const Json* const time = record.find("step_ms")) return time->is_number() ? time->number() : 0;
  const Json& rate = record.at("tokens_per_s");
  return rate.is_number() && rate.number() > 0 ? 1e3 * tokens / static_cast<double>(steps) / rate.number() : 0;
}

// With those of keel/trainer/weight_averages.h, which lie where the optimizer has weights, and in checkpoints.
RankPlan plan_with_averages(const Config& config, const StackModels& models, int ranks, int rank, bool on_processor) {
  RankPlan plan = plan_stacks(config, models, ranks, rank, on_processor);
  const int averages = (config.ema.decay > 0 ? 1 : 0) + (config.swa.start.is_none() ? 0 : 1);
  const std::int64_t bytes = averages * plan.owned * static_cast<std::int64_t>(sizeof(float));
  (plan.updates_on_host ? plan.memory.host : plan.memory.optimizer) += bytes;
  if (plan.saves) plan.memory.checkpoint += bytes;
  return plan;
}

}  // namespace

RankPlan plan_run(const Config& config, const StackModels& models, int ranks, bool on_processor) {
  RankPlan plan = plan_with_averages(config, models, ranks, 0, on_processor);
  if (!config.checkpoint.memory_every.is_none())
    plan.memory.copies =
        MemoryCopies::kAtOnce * (plan.memory.checkpoint + (ranks > 1 ? planned_files(config, models, ranks, 1) : 0));
  if (!config.checkpoint.async) plan.memory.checkpoint = 0;  // nothing is copied
  return plan;
}

std::int64_t planned_files(const Config& config, const StackModels& models, int ranks, int rank) {
  return plan_with_averages(config, models, ranks, rank, true).memory.checkpoint;
}

std::vector<TraceNode> trace_run(const Config& config, TaskBase& task, int ranks, int rank) {
  const StackModels models(task);
  if (models.all().size() > 1)
    throw Error(concat("the graph of a step is of one model, and the task ", config.task, " has ", models.all().size(),
                       ", whose turns only its code knows"),
                ErrorKind::unsupported);
  const Rows rows = divide_rows_in_turn(config.batch.global, config.batch.micro, rank, config.sharding.dealt_to(ranks),
                                        config.sharding.of_each(ranks))
                        .front();
  return PlannedStack(config, models.main(), ranks, false).trace(rank, (rows.end - rows.begin) * task.positions());
}

bool ran_on_device(const std::string& folder) {
  const std::string metrics = RunFolder(folder).metrics();
  if (!std::filesystem::exists(metrics)) return false;
  bool on_device = false;
  for (const Json& record : read_metrics(metrics)) {
    if (record.contains("resident_bytes")) on_device = record.contains("device_bytes");
    on_device |= record.contains("peak_host_bytes");
  }
  return on_device;
}

std::optional<MeasuredRun> read_measured_run(const std::string& path, const std::shared_ptr<const ConfigKeys>& keys) {
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
    const auto later = [&](std::string_view name) {  // that an older keel did not write
      const Json* const bytes = record.find(name);
      return bytes == nullptr ? 0 : bytes->integer();
    };
    run.checkpoint = later("peak_checkpoint_bytes");
    run.host = later("peak_host_bytes");
    run.host_buckets = later("peak_host_bucket_bytes");
  }
  if (!ended) return std::nullopt;
  check_is_known(*keys, read_text_file(folder.config()), folder.config());
  run.config = load_config(keys, folder.config());
  run.on_device = ran_on_device(path);
  const bool evaluates_once = !find_optimizer(run.config.optimizer.type).requirements.closure;
  if (steps > 0 && evaluates_once) run.sent = sent / steps;
  while (std::filesystem::exists(folder.log(run.ranks))) ++run.ranks;
  return run;
}

}  // namespace keel
