#pragma once
// Metrics of numbers: errors of predictions, R2, perplexity, sums.

#include <cstdint>
#include <vector>

#include "keel/tasks/metric.h"

namespace keel {

// Sums over rows, for each of the outputs that a row has. Results are means over outputs, as scikit-learn's
// `uniform_average`.
class OutputErrors : public SumMetric {
 public:
  // Floating numbers of one shape, (rows, ...), of so many outputs a row; else an Error that names both shapes.
  void update(const Tensor& predictions, const Tensor& targets);
  bool is_better_greater() const override { return false; }

 protected:
  OutputErrors(std::int64_t outputs, std::size_t sums);
  double rows() const { return sum(0); }
  // Sum k of one output.
  double of_output(std::int64_t output, std::size_t k) const { return sum(1 + sums_ * std::size_t(output) + k); }
  std::int64_t outputs() const { return outputs_; }
  void add_to(std::int64_t output, std::size_t k, double value) { add(1 + sums_ * std::size_t(output) + k, value); }

 private:
  virtual void add_row(std::int64_t output, double prediction, double target) = 0;
  std::int64_t outputs_;
  std::size_t sums_;
};

// The mean of |prediction - target|.
class MeanAbsoluteError : public OutputErrors {
 public:
  explicit MeanAbsoluteError(std::int64_t outputs = 1) : OutputErrors(outputs, 1) {}
  std::vector<NamedNumber> result() const override;

 private:
  void add_row(std::int64_t output, double prediction, double target) override;
};

// The mean of (prediction - target)^2; with `root`, its square root for each output, and then the mean over outputs.
class MeanSquaredError : public OutputErrors {
 public:
  explicit MeanSquaredError(std::int64_t outputs = 1, bool root = false) : OutputErrors(outputs, 1), root_(root) {}
  std::vector<NamedNumber> result() const override;

 private:
  void add_row(std::int64_t output, double prediction, double target) override;
  bool root_;
};

// The part of the targets' variance that the predictions explain: 1 - sum (p - t)^2 / sum (t - mean of t)^2 for each
// output, and the mean over outputs. Where targets do not vary it is 1 if all are predicted, and else 0; of fewer than
// two rows it is NaN; both as scikit-learn's r2_score. The variance is a difference of sums of t and t^2 in fp64: its
// relative error is about 1e-16 (1 + mean^2 / variance), and a variance below 1e-13 of mean^2, less than fp32 tells
// apart, counts as none.
class R2 : public OutputErrors {
 public:
  explicit R2(std::int64_t outputs = 1) : OutputErrors(outputs, 3) {}
  std::vector<NamedNumber> result() const override;
  bool is_better_greater() const override { return true; }

 private:
  void add_row(std::int64_t output, double prediction, double target) override;
};

// exp of a mean of negative log-likelihoods: of how many equally likely tokens the model chooses (Jelinek et al. 1977).
class Perplexity : public MeanMetric {
 public:
  using MeanMetric::update;
  // Adds -log softmax(scores)[target] in fp64 of each target but those of -100. `scores`: floating (rows, ...,
  // classes); `targets`: whole (rows, ...). Other shapes, or a target that is no class, are an Error.
  void update(const Tensor& scores, const Tensor& targets);
  std::vector<NamedNumber> result() const override;
};

// The sum of all that it is fed with; 0 of nothing.
class Total : public SumMetric {
 public:
  Total() : SumMetric(1) {}
  void update(double value) { add(0, value); }
  std::vector<NamedNumber> result() const override { return {{"", sum(0)}}; }
  bool is_better_greater() const override { return false; }
};

}  // namespace keel
