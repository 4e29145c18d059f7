#include "keel/trainer/evaluation.h"

#include <algorithm>
#include <string>

#include "keel/autograd/variable.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/exchange.h"
#include "keel/trainer/pass_group.h"
#include "keel/trainer/progress.h"

namespace keel {

void evaluate(const BatchSource& source, std::int64_t batches, const Context& device, DType dtype,
              const ValidationFunction& validate, Metrics& metrics, Communicator& ranks) {
  const NoGrad no_grad;
  PassGroup group(ranks);
  for (std::int64_t first = 0; first < batches; first += ranks.size()) {
    // Ranks may gather weights from each other in a forward pass, so those without a batch repeat the last one.
    const std::int64_t mine = std::min(first + ranks.rank(), batches - 1);
    Batch loaded;
    together(ranks, [&] { loaded = source.load_all(mine); });
    const Batch batch = transfer(loaded, device);
    Forward pass{.training = false, .random = {}, .sample_ids = batch.sample_ids(), .dtype = dtype, .group = &group};
    validate(batch, pass, metrics);
    const std::vector<std::string> added = gather_texts(ranks, take_added(metrics));
    for (std::int64_t i = 0; i < ranks.size() && first + i < batches; ++i)
      join_added(metrics, added[static_cast<std::size_t>(i)]);
  }
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

std::int64_t batches_of(const ValidationSet& set, std::int64_t limit) {
  const std::int64_t all = set.source->steps();
  return limit == 0 ? all : std::min(limit, all);
}

std::vector<NamedNumber> evaluate_set(Task& task, const ValidationSet& set, std::int64_t batches, const Context& device,
                                      DType dtype, Communicator& ranks) {
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
