#include "keel/trainer/step_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "keel/runtime/error.h"

namespace keel {

double WeightTotals::of(std::string_view weight) const {
  const auto place = std::ranges::find(weights_, weight);
  KEEL_CHECK(place != weights_.end(), "a term of the loss is a mean over ", weight,
             ", which no term of the session's first step was; give a term that is not wanted the factor 0");
  return totals_[static_cast<std::size_t>(place - weights_.begin())];
}

std::vector<std::string> weights_of(const Loss& loss) {
  KEEL_CHECK(!loss.terms().empty(), "the loss has no term");
  std::vector<std::string> weights;
  for (const LossTerm& term : loss.terms())
    if (std::ranges::find(weights, term.weight) == weights.end()) weights.push_back(term.weight);
  return weights;
}

std::vector<double> sum_weights(std::span<const std::string> weights, std::span<const Batch> batches) {
  std::vector<double> sums(weights.size());
  for (const Batch& batch : batches)
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += batch.weight(weights[i]);
  return sums;
}

void check_counts(const Loss& loss, const Batch& batch) {
  if (batch.is_stand_in()) return;
  for (const LossTerm& term : loss.terms()) {
    if (!term.counted.defined()) continue;
    const std::int64_t counted = HostCopy(term.counted).get().to_vector<std::int64_t>().front();
    KEEL_CHECK(static_cast<double>(counted) == batch.weight(term.weight), term.name.empty() ? "the loss" : term.name,
               " is a mean over ", counted, " targets, but the batch has ", batch.weight(term.weight), ' ', term.weight,
               "; name the weight that counts them");
  }
}

void backward(Sharded& engine, const Loss& loss, const Batch& batch, const WeightTotals& totals, bool last) {
  const std::vector<std::string> weights = weights_of(loss);
  KEEL_CHECK(!totals.empty() || weights.size() == 1, "terms of the loss are means over ", weights[0], " and ",
             weights.back(), ", and nobody has added them up");
  // Any total is right for a single weight: the terms are divided by what they are multiplied with.
  const auto total_of = [&](const std::string& weight) {
    return totals.empty() ? batch.weight(weight) : totals.of(weight);
  };
  const auto counted = std::ranges::find_if(weights, [&](const std::string& each) { return total_of(each) > 0; });
  const double divisor = counted == weights.end() ? 0 : total_of(*counted);
  std::vector<WeightedLoss> terms;
  for (const LossTerm& term : loss.terms())
    terms.push_back({term.value, term.factor_of(batch.weight(term.weight), total_of(term.weight), divisor)});
  engine.backward(terms, {.weight = counted == weights.end() ? 0 : batch.weight(*counted), .last = last});
}

StepLoss::StepLoss(const Loss& loss, const Batch& batch) : signature_(loss.signature()) {
  const auto add = [&](TermKind kind, const Tensor& value) {
    values_.emplace_back(value);
    weights_.push_back(batch.weight(kind.weight));
    kinds_.push_back(std::move(kind));
  };
  for (const LossTerm& term : loss.terms()) add({term.name, term.weight, term.factor, term.is_sum}, term.value.value());
  for (const Loss::Logged& value : loss.logged()) add({value.name, value.weight, 0, false, true}, value.mean);
}

StepLoss StepLoss::with(const Tensor& value) const {
  KEEL_CHECK(values_.size() == 1, "a loss of ", values_.size(), " numbers was given one");
  StepLoss other = *this;
  other.values_.front() = HostCopy(value);
  return other;
}

void StepLoss::add_to(std::span<double> sums) const {
  KEEL_CHECK(sums.size() == kSums * kinds_.size(), "the loss has ", kinds_.size(), " numbers and not ",
             sums.size() / kSums);
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    if (weights_[i] == 0) continue;
    const double value = values_[i].get().item();
    sums[kSums * i] += kinds_[i].is_sum ? value : value * weights_[i];
    sums[kSums * i + 1] += weights_[i];
  }
}

std::optional<BadTerm> StepLoss::first_bad() const {
  std::optional<BadTerm> found;
  for (std::size_t i = 0; i < kinds_.size() && !kinds_[i].is_logged; ++i) {
    const double value = values_[i].get().item();
    if (std::isfinite(value)) continue;
    if (weights_[i] > 0) return BadTerm{static_cast<std::int64_t>(i), value, true};
    if (!found) found = BadTerm{static_cast<std::int64_t>(i), value, false};
  }
  return found;
}

double mean_of_term(std::span<const double> sums, std::size_t term) {
  const double weight = sums[StepLoss::kSums * term + 1];
  return weight > 0 ? sums[StepLoss::kSums * term] / weight : std::numeric_limits<double>::quiet_NaN();
}

double loss_of(std::span<const TermKind> kinds, std::span<const double> sums) {
  double loss = 0;
  bool has_weight = false;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i].is_logged || !(sums[StepLoss::kSums * i + 1] > 0)) continue;
    loss += kinds[i].factor * mean_of_term(sums, i);
    has_weight = true;
  }
  return has_weight ? loss : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace keel
