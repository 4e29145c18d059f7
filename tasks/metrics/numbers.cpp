#include "keel/tasks/metrics/numbers.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "keel/data/token_batch.h"
#include "keel/runtime/error.h"
#include "keel/tasks/metrics/values.h"

namespace keel {

OutputErrors::OutputErrors(std::int64_t outputs, std::size_t sums)
    : SumMetric(1 + sums * static_cast<std::size_t>(std::max<std::int64_t>(outputs, 0))),
      outputs_(outputs),
      sums_(sums) {
  KEEL_CHECK(outputs >= 1, "a metric of numbers needs one output at least, not ", outputs);
}

void OutputErrors::update(const Tensor& predictions, const Tensor& targets) {
  const bool has_rows = targets.rank() >= 1 && predictions.shape() == targets.shape();
  const std::int64_t rows = has_rows ? targets.dim(0) : 0;
  KEEL_CHECK(has_rows && targets.numel() == rows * outputs_, "predictions ", predictions.shape(), " and targets ",
             targets.shape(), " must both be rows of ", outputs_, outputs_ == 1 ? " number" : " numbers");
  const std::vector<double> predicted = floating_numbers(predictions), wanted = floating_numbers(targets);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    add_row(static_cast<std::int64_t>(i) % outputs_, predicted[i], wanted[i]);
  add(0, static_cast<double>(rows));
}

void MeanAbsoluteError::add_row(std::int64_t output, double prediction, double target) {
  add_to(output, 0, std::abs(prediction - target));
}

std::vector<NamedNumber> MeanAbsoluteError::result() const {
  double total = 0;
  for (std::int64_t output = 0; output < outputs(); ++output) total += of_output(output, 0);
  return {{"", ratio_of(total, rows() * static_cast<double>(outputs()))}};
}

void MeanSquaredError::add_row(std::int64_t output, double prediction, double target) {
  const double error = prediction - target;
  add_to(output, 0, error * error);
}

std::vector<NamedNumber> MeanSquaredError::result() const {
  double total = 0;
  for (std::int64_t output = 0; output < outputs(); ++output) {
    const double mean = ratio_of(of_output(output, 0), rows());
    total += root_ ? std::sqrt(mean) : mean;
  }
  return {{"", total / static_cast<double>(outputs())}};
}

void R2::add_row(std::int64_t output, double prediction, double target) {
  const double error = prediction - target;
  add_to(output, 0, error * error);
  add_to(output, 1, target);
  add_to(output, 2, target * target);
}

std::vector<NamedNumber> R2::result() const {
  constexpr double kNoVariance = 1e-13;
  if (rows() < 2) return {{"", kUndefined}};
  double total = 0;
  for (std::int64_t output = 0; output < outputs(); ++output) {
    const double errors = of_output(output, 0), targets = of_output(output, 1), squares = of_output(output, 2);
    const double variation = squares - targets * targets / rows();
    if (variation <= kNoVariance * squares) total += errors == 0 ? 1 : 0;
    else total += 1 - errors / variation;
  }
  return {{"", total / static_cast<double>(outputs())}};
}

void Perplexity::update(const Tensor& scores, const Tensor& targets) {
  Dims of_targets = scores.shape();
  const std::int64_t classes = of_targets.size() > 1 ? of_targets.back() : 0;
  if (classes > 0) of_targets.pop_back();
  KEEL_CHECK(classes > 0 && targets.shape() == of_targets, "scores ", scores.shape(), " and targets ", targets.shape(),
             " must be (rows, ..., classes) and (rows, ...)");
  const std::vector<double> all = floating_numbers(scores);
  const std::vector<std::int64_t> wanted = whole_values(targets);
  double total = 0, count = 0;
  for (std::size_t row = 0; row < wanted.size(); ++row) {
    const std::int64_t target = wanted[row];
    if (target == kIgnoreTarget) continue;
    KEEL_CHECK(target >= 0 && target < classes, "target ", target, " is none of the classes 0 to ", classes - 1);
    const auto width = static_cast<std::size_t>(classes);
    const auto own = std::span(all).subspan(row * width, width);
    const double largest = *std::ranges::max_element(own);
    double sum = 0;
    for (const double score : own) sum += std::exp(score - largest);
    total += largest + std::log(sum) - own[static_cast<std::size_t>(target)];
    ++count;
  }
  if (count > 0) update(total / count, count);
}

std::vector<NamedNumber> Perplexity::result() const { return {{"", std::exp(MeanMetric::result().front().value)}}; }

}  // namespace keel
