#include "keel/trainer/run_trackers.h"

#include <filesystem>

#include "keel/config/schema.h"
#include "keel/trainer/tracker_config.h"

namespace keel {
namespace {

RunDescription describe_run(const Config& config, int ranks, std::optional<std::int64_t> step) {
  RunDescription run;
  run.name = RunFolder(config.run).name();
  run.folder = std::filesystem::absolute(config.run).lexically_normal().string();
  run.config = to_yaml(config);
  for (const auto& [row, value] : applying_values(config.schema(), config)) run.settings.emplace_back(row->key, value);
  run.tags = run_tags(ranks);
  run.step = step.value_or(0);
  run.is_resumed = step.has_value();
  return run;
}

}  // namespace

RunTrackers::~RunTrackers() { log_ = &observer_; }  // the log may be gone by now

void RunTrackers::begin(const Config& config, int ranks, std::optional<std::int64_t> step, TrainObserver& log) {
  if (config.trackers.empty()) return;
  log_ = &log;
  every_ = config.log.every;
  steps_ = config.steps;
  std::vector<HostedTracker> trackers = make_trackers(config.trackers);
  for (HostedTracker& each : trackers) each.every.measure(config.epoch_steps, config.steps);
  host_.emplace(std::move(trackers), describe_run(config, ranks, step),
                [this](LogLevel level, std::string_view text) { log_->on_message(level, text); });
  artifact("config", RunFolder(config.run).config());
}

void RunTrackers::artifact(std::string_view name, const std::string& path) {
  if (host_) host_->artifact(name, std::filesystem::absolute(path).lexically_normal().string());
}

void RunTrackers::end(RunStatus status) {
  if (host_) host_->end(status);
}

void RunTrackers::on_record(std::int64_t step, RecordKind kind, std::span<const Logged> values) {
  const bool may_be_left_out = kind == RecordKind::step && step != steps_;
  if (host_) host_->log(step, values, may_be_left_out ? every_.due_before(step) : TrackerHost::kForAll);
  observer_.on_record(step, kind, values);
}

void RunTrackers::on_checkpoint(const CheckpointReport& report) {
  artifact("checkpoint", report.path);
  observer_.on_checkpoint(report);
}

}  // namespace keel
