#include "keel/trainer/run_report.h"

#include <algorithm>
#include <array>

#include "keel/runtime/stopwatch.h"
#include "keel/trainer/process_memory.h"

namespace keel {

void RunReport::begin(double waited_ms) {
  began_ = seconds_now();
  clock_.begin(began_, waited_ms);
}

void RunReport::go_on(double waited_ms) { clock_.begin(seconds_now(), waited_ms); }

double RunReport::seconds() const { return seconds_now() - began_; }

bool RunReport::tell_step(const StepOutcome& outcome, double waited_ms, std::int64_t units,
                          const std::vector<std::pair<std::string, double>>& logged) {
  const Config& config = site_.config;
  const double now = seconds_now();
  clock_.end_step(now, waited_ms);
  StepReport report;
  report.step = outcome.step;
  report.steps = config.steps;
  report.loss = outcome.loss;
  report.unit = site_.unit;
  report.units_per_s = static_cast<double>(outcome.units) / clock_.mean_seconds();
  report.lr = outcome.result.lr;
  report.grad_norm = outcome.result.grad_norm;
  double left = clock_.mean_seconds() * static_cast<double>(config.steps - outcome.step);
  report.time_limit = config.time_limit;
  report.seconds = site_.time.seconds();
  if (site_.time.has_limit()) left = std::min(left, std::max(0.0, report.time_limit - report.seconds));
  report.seconds_left = left;
  const bool is_due = config.log.every.is_due(outcome.step) || outcome.step == config.steps;
  if (is_due && site_.files.wants_records()) write_step(outcome, report, now, units, logged);
  site_.observer.on_step(report);
  if (const std::string grown = growth_.note(site_.stacks.engine().context().memory(), own_bytes); !grown.empty())
    site_.observer.on_message(LogLevel::warning, concat("step ", outcome.step, ": ", grown));
  return is_due;
}

void RunReport::write_step(const StepOutcome& outcome, const StepReport& report, double now, std::int64_t units,
                           const std::vector<std::pair<std::string, double>>& logged) {
  const StepClock::Interval times = clock_.take_interval();
  const std::string speed = report.unit + "_per_s";
  std::vector<Logged> metrics = {
      {"loss", outcome.loss},      {"lr", report.lr},          {"grad_norm", report.grad_norm},
      {speed, report.units_per_s}, {"step_ms", times.step_ms}, {"elapsed_s", now - began_},
      {report.unit, units}};
  const auto update = std::ranges::find(outcome.updates, site_.stacks.main().name(), &ModelUpdate::model);
  if (update != outcome.updates.end())
    for (const NamedNumber& each : site_.rates)
      metrics.push_back({concat("lr/", each.name), each.value * update->result.lr});
  if (outcome.flops > 0) metrics.push_back({"model_flops", outcome.flops});
  const double peak = site_.config.log.peak_flops * site_.ranks.size();
  if (outcome.flops > 0 && peak > 0)
    metrics.push_back({"flops_utilization", outcome.flops / (clock_.mean_seconds() * peak)});
  metrics.push_back({"resident_bytes", resident_bytes()});
  const Sharded& engine = site_.stacks.engine();
  const Context& context = engine.context();
  if (context.device().type != DeviceType::cpu)
    metrics.push_back({"device_bytes", static_cast<std::int64_t>(context.memory().reserved)});
  for (const NamedNumber& each : outcome.terms) metrics.push_back({concat("train/", each.name), each.value});
  const double epoch = site_.config.epoch_steps;
  if (epoch > 0) metrics.push_back({"epoch", static_cast<double>(outcome.step) / epoch});
  if (engine.optimizer().requirements().closure) metrics.push_back({"evaluations", outcome.result.evaluations});
  if (engine.options().loss_scale != 1) metrics.push_back({"loss_scale", outcome.result.loss_scale});
  if (site_.ranks.size() > 1) {
    const std::int64_t sent = site_.stacks.data_sent(), steps = outcome.step - measured_step_;
    metrics.push_back({"exposed_ms", times.exposed_ms});
    metrics.push_back({"sent_bytes", (sent - measured_bytes_) / steps});
    measured_bytes_ = sent;
    measured_step_ = outcome.step;
  }
  for (const auto& [name, value] : logged) metrics.push_back({name, value});
  site_.files.tell(outcome.step, metrics, RecordKind::step);
}

void RunReport::tell_evaluation(const EvalReport& report) {
  std::vector<Logged> record;
  for (const NamedNumber& each : report.values) record.push_back({each.name, each.value});
  site_.files.tell(report.step, record);
  site_.observer.on_eval(report);
}

void RunReport::tell_values(std::int64_t step, std::span<const Logged> values) { site_.files.tell(step, values); }

std::int64_t RunReport::tell_memory(std::int64_t step) {
  const Context& context = site_.stacks.engine().context();
  const MemoryReport memory = context.memory(), host = context.host().memory();
  std::array<std::string, kPurposeCount> names;
  std::vector<Logged> metrics;
  for (std::size_t i = 0; i < names.size(); ++i) {
    names[i] = concat("peak_", name_of(static_cast<Purpose>(i)), "_bytes");
    const MemoryReport& where = static_cast<Purpose>(i) == Purpose::checkpoint ? host : memory;
    metrics.push_back({names[i], static_cast<std::int64_t>(where.by_purpose[i].peak)});
  }
  metrics.push_back({"peak_total_bytes", static_cast<std::int64_t>(memory.total.peak)});
  if (context.device().type != DeviceType::cpu) {
    std::size_t kept = 0;
    for (const Purpose each : {Purpose::parameter, Purpose::gradient, Purpose::optimizer}) kept += host[each].peak;
    metrics.push_back({"peak_host_bytes", static_cast<std::int64_t>(kept)});
    metrics.push_back({"peak_host_bucket_bytes", static_cast<std::int64_t>(host[Purpose::bucket].peak)});
  }
  const std::int64_t resident = peak_resident_bytes();
  metrics.push_back({"peak_resident_bytes", resident});
  tell_values(step, metrics);
  return resident;
}

}  // namespace keel
