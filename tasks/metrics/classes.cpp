#include "keel/tasks/metrics/classes.h"

#include <string>

#include "keel/data/token_batch.h"
#include "keel/runtime/error.h"
#include "keel/tasks/metrics/values.h"

namespace keel {
namespace {

std::int64_t checked_classes(std::int64_t classes) {
  KEEL_CHECK(classes >= 2, "a metric of classes needs two of them at least, not ", classes);
  return classes;
}

std::vector<CountedTarget> counted_classes(const Tensor& guesses, const Tensor& targets, std::int64_t classes) {
  std::vector<CountedTarget> counted = counted_targets(guesses, targets);
  for (const CountedTarget& each : counted) {
    const bool is_wrong_guess = each.guess < 0 || each.guess >= classes;
    KEEL_CHECK(!is_wrong_guess && each.target >= 0 && each.target < classes, is_wrong_guess ? "guess " : "target ",
               is_wrong_guess ? each.guess : each.target, " is none of the classes 0 to ", classes - 1);
  }
  return counted;
}

}  // namespace

ClassScore::ClassScore(ClassQuotient quotient, ClassAverage average, std::int64_t classes)
    : SumMetric(static_cast<std::size_t>(3 * checked_classes(classes))),
      quotient_(quotient),
      average_(average),
      classes_(classes) {
  KEEL_CHECK(average != ClassAverage::binary || classes == 2,
             "a binary score is that of class 1 of two, and there are ", classes,
             " classes; macro, micro and weighted are means over several");
}

void ClassScore::update(const Tensor& guesses, const Tensor& targets) {
  for (const CountedTarget& each : counted_classes(guesses, targets, classes_)) {
    if (each.guess == each.target) add(static_cast<std::size_t>(3 * each.target), 1);
    add(static_cast<std::size_t>(3 * each.guess + 1), 1);
    add(static_cast<std::size_t>(3 * each.target + 2), 1);
  }
}

double ClassScore::quotient(double right, double guessed, double wanted) const {
  double above = right, below = guessed;
  if (quotient_ == ClassQuotient::recall) below = wanted;
  if (quotient_ == ClassQuotient::f1) {
    above = 2 * right;
    below = guessed + wanted;
  }
  return below > 0 ? above / below : 0;
}

double ClassScore::macro() const {
  double total = 0, count = 0;
  for (std::int64_t c = 0; c < classes_; ++c) {
    if (!occurs(c)) continue;
    total += of_class(c);
    ++count;
  }
  return ratio_of(total, count);
}

double ClassScore::micro() const {
  double rights = 0, all = 0;
  for (std::int64_t c = 0; c < classes_; ++c) {
    rights += right(c);
    all += wanted(c);  // as many as guesses
  }
  return ratio_of(rights, all);
}

double ClassScore::weighted() const {
  double total = 0, weight = 0;
  for (std::int64_t c = 0; c < classes_; ++c) {
    total += wanted(c) * of_class(c);
    weight += wanted(c);
  }
  return ratio_of(total, weight);
}

std::vector<NamedNumber> ClassScore::result() const {
  switch (average_) {
    case ClassAverage::binary: return {{"", occurs(0) || occurs(1) ? of_class(1) : kUndefined}};
    case ClassAverage::macro: return {{"", macro()}};
    case ClassAverage::micro: return {{"", micro()}};
    case ClassAverage::weighted: return {{"", weighted()}};
    case ClassAverage::per_class: break;
  }
  std::vector<NamedNumber> all;
  for (std::int64_t c = 0; c < classes_; ++c) all.push_back({std::to_string(c), occurs(c) ? of_class(c) : kUndefined});
  return all;
}

ConfusionCounts::ConfusionCounts(std::int64_t classes)
    : SumMetric(static_cast<std::size_t>(checked_classes(classes) * classes)), classes_(classes) {}

void ConfusionCounts::update(const Tensor& guesses, const Tensor& targets) {
  for (const CountedTarget& each : counted_classes(guesses, targets, classes_))
    add(static_cast<std::size_t>(each.target * classes_ + each.guess), 1);
}

std::vector<NamedNumber> ConfusionCounts::result() const {
  std::vector<NamedNumber> all;
  for (std::int64_t target = 0; target < classes_; ++target)
    for (std::int64_t guess = 0; guess < classes_; ++guess)
      all.push_back({concat(target, '_', guess), sum(static_cast<std::size_t>(target * classes_ + guess))});
  return all;
}

void ExactMatch::update(const Tensor& guesses, const Tensor& targets) {
  KEEL_CHECK(guesses.shape() == targets.shape() && targets.rank() >= 1, "guesses ", guesses.shape(), " and targets ",
             targets.shape(), " must both be (rows, ...)");
  const std::vector<std::int64_t> guessed = whole_values(guesses), wanted = whole_values(targets);
  const auto rows = static_cast<std::size_t>(targets.dim(0)), each = rows == 0 ? 0 : wanted.size() / rows;
  for (std::size_t row = 0; row < rows; ++row) {
    bool is_right = true;
    for (std::size_t i = row * each; i < (row + 1) * each; ++i)
      is_right = is_right && (wanted[i] == kIgnoreTarget || wanted[i] == guessed[i]);
    add(0, is_right ? 1 : 0);
  }
  add(1, static_cast<double>(rows));
}

std::vector<NamedNumber> ExactMatch::result() const { return {{"", ratio_of(sum(0), sum(1))}}; }

}  // namespace keel
