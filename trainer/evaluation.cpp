#include "keel/trainer/evaluation.h"

#include <algorithm>
#include <string>

#include "keel/trainer/batch_rounds.h"
#include "keel/trainer/progress.h"

namespace keel {

void evaluate(const BatchSource& source, std::int64_t batches, const Context& device, DType dtype,
              const ValidationFunction& validate, Metrics& metrics, Communicator& ranks) {
  const auto answer = [&](const Batch& batch, Forward& pass) {
    validate(batch, pass, metrics);
    return take_added(metrics);
  };
  answer_in_rounds(source, batches, device, dtype, ranks, answer, [&](std::span<const std::string> answers) {
    for (const std::string& added : answers) join_added(metrics, added);
  });
}

std::vector<NamedNumber> named_values(const Metrics& metrics, std::string_view set) {
  const std::string prefix = set.empty() ? "" : concat(set, '/');
  std::vector<NamedNumber> values;
  for (const auto& [name, metric] : metrics.all())
    for (const NamedNumber& each : metric->result()) {
      std::string full = concat(prefix, name, each.name.empty() ? "" : "_", each.name);
      if (full == "loss") full = kValidationLoss;
      values.push_back({std::move(full), each.value});
    }
  return values;
}

std::int64_t batches_of(const ValidationSet& set, const BatchLimits& limits) {
  return limits.of(set.name).of(set.source->steps());
}

std::vector<NamedNumber> evaluate_set(TaskBase& task, const ValidationSet& set, std::int64_t batches,
                                      const Context& device, DType dtype, Communicator& ranks) {
  Metrics metrics;
  metrics.make<MeanMetric>("loss");
  task.make_metrics(set.name, metrics);
  const auto validate = [&task](const Batch& batch, Forward& pass, Metrics& fed) {
    task.validation_step(batch, pass, fed);
  };
  evaluate(*set.source, batches, device, dtype, validate, metrics, ranks);
  return named_values(metrics, set.name);
}

}  // namespace keel
