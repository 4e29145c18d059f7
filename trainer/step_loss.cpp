#include "keel/trainer/step_loss.h"

#include "keel/runtime/error.h"

namespace keel {

double weight_of(const Loss& loss, const Batch& batch) {
  KEEL_CHECK(!loss.terms().empty(), "the loss has no term");
  const std::string& weight = loss.terms().front().weight;
  for (const LossTerm& term : loss.terms())
    if (term.weight != weight)
      throw Error(concat("terms of the loss are means over different weights, ", weight, " and ", term.weight,
                         ", which is not offered"),
                  ErrorKind::unsupported);
  return batch.weight(weight);
}

void backward(Sharded& engine, const Loss& loss, const Batch& batch, bool last) {
  const double weight = weight_of(loss, batch);
  std::vector<WeightedLoss> terms;
  for (const LossTerm& term : loss.terms())
    terms.push_back({term.value, weight > 0 ? term.factor_of(weight, weight, weight) : 0});
  engine.backward(terms, {.weight = weight, .last = last});
}

StepLoss::StepLoss(const Loss& loss, const Batch& batch) : weight_(weight_of(loss, batch)) {
  for (const LossTerm& term : loss.terms()) terms_.push_back({HostCopy(term.value.value()), term.factor, term.is_sum});
}

StepLoss::StepLoss(const Tensor& value, double factor, double weight)
    : terms_{{HostCopy(value), factor, false}}, weight_(weight) {}

double StepLoss::get() const {
  double sum = 0;
  for (const Term& term : terms_) {
    const double value = term.value.get().item();
    sum += term.factor * (term.is_sum && weight_ > 0 ? value / weight_ : value);
  }
  return sum;
}

}  // namespace keel
