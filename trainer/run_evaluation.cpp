#include "keel/trainer/run_evaluation.h"

#include <algorithm>
#include <utility>

#include "keel/runtime/error.h"
#include "keel/runtime/stopwatch.h"
#include "keel/trainer/evaluation.h"

namespace keel {

EvalReport RunEvaluation::run(std::int64_t step, std::int64_t batches) const {
  const double start = seconds_now();
  EvalReport report{.step = step};
  for (const ValidationSet& set : data.validation) add(set, batches, report);
  report.seconds = seconds_now() - start;
  return report;
}

void RunEvaluation::add(const ValidationSet& set, std::int64_t batches, EvalReport& report) const {
  Metrics metrics;
  metrics.make<MeanMetric>("loss");
  task.make_metrics(set.name, metrics);
  const std::int64_t all = set.source->steps();
  const auto validate = [this](const Batch& batch, Forward& pass, Metrics& fed) {
    task.validation_step(batch, pass, fed);
  };
  evaluate(*set.source, batches == 0 ? all : std::min(batches, all), engine.context(),
           engine.options().policy.parameter, validate, metrics, ranks);
  const std::string prefix = set.name.empty() ? "" : set.name + '/';
  for (const auto& [name, metric] : metrics.all())
    for (const NamedNumber& each : metric->result()) {
      std::string full = concat(prefix, name, each.name.empty() ? "" : "_", each.name);
      if (full == "loss") full = kValidationLoss;
      report.values.push_back({std::move(full), each.value});
    }
}

}  // namespace keel
