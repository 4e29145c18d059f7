#pragma once
// A micro-batch's loss on its way into the engine, and to the host.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/dist/parallel/sharded.h"
#include "keel/tasks/loss.h"

namespace keel {

// What each weight of a step's terms comes to over all micro-batches and ranks. Empty: all terms have one weight, and
// then nobody needs the total.
class WeightTotals {
 public:
  WeightTotals() = default;
  WeightTotals(std::vector<std::string> weights, std::vector<double> totals)
      : weights_(std::move(weights)), totals_(std::move(totals)) {}
  bool empty() const { return weights_.empty(); }
  // An Error for a weight that was not added up.
  double of(std::string_view weight) const;

 private:
  std::vector<std::string> weights_;
  std::vector<double> totals_;
};

// The different weights of a loss's terms, in the order in which terms name them. A loss without a term is an Error.
std::vector<std::string> weights_of(const Loss& loss);

// What each of them comes to over these batches.
std::vector<double> sum_weights(std::span<const std::string> weights, std::span<const Batch> batches);

// An Error where a term knows how many targets it is a mean over, and the batch has another weight: other micro-batches
// would then be another training. Waits for the device.
void check_counts(const Loss& loss, const Batch& batch);

// Adds the gradients of a loss to those of the step, by the formula of keel/tasks/loss.h. `last`: of the step's
// micro-batches. Without totals, terms of different weights are an Error.
void backward(Sharded& engine, const Loss& loss, const Batch& batch, const WeightTotals& totals, bool last);

// A term, or a value that is logged, without its number.
struct TermKind {
  std::string name, weight;
  double factor = 1;
  bool is_sum = false;
  bool is_logged = false;  // alone, and no part of the loss
};

// A term whose value is not finite.
struct BadTerm {
  std::int64_t term = 0;
  double value = 0;
  bool has_weight = true;
};

// The numbers of a loss, which may still be on their way from a device.
class StepLoss {
 public:
  // Numbers that each term adds up to over a step: its values times their weights, and the weights.
  static constexpr std::size_t kSums = 2;

  StepLoss() = default;
  StepLoss(const Loss& loss, const Batch& batch);
  // The same terms with another number, for a loss of one term.
  StepLoss with(const Tensor& value) const;

  // Terms in order, and values that are logged behind them.
  const std::vector<TermKind>& kinds() const { return kinds_; }
  std::uint64_t signature() const { return signature_; }
  // Adds kSums numbers for each of kinds(); waits. What has no weight adds nothing, whatever it is.
  void add_to(std::span<double> sums) const;

  // The first term that has weight and is not finite, or else the first without weight; waits.
  std::optional<BadTerm> first_bad() const;

 private:
  std::vector<TermKind> kinds_;
  std::vector<HostCopy> values_;
  std::vector<double> weights_;
  std::uint64_t signature_ = 0;
};

// The mean of a term over its weight; not a number where it had none.
double mean_of_term(std::span<const double> sums, std::size_t term);
// The loss: the sum over terms with weight of factor * mean; not a number where none has any.
double loss_of(std::span<const TermKind> kinds, std::span<const double> sums);

}  // namespace keel
