#pragma once
// Metrics of classes: confusion counts, precision, recall and F1.
//
// For a class c, with  right = targets of c that are guessed,  guessed = guesses of c,  wanted = targets of c:
//
//   precision = right / guessed    recall = right / wanted    F1 = 2 right / (guessed + wanted)
//
// (van Rijsbergen 1979, "Information Retrieval", chapter 7). Definitions and results are those of scikit-learn's
// defaults: a quotient by 0 is 0 (zero_division), and a class that is neither guessed nor wanted is left out of the
// macro mean. Without any target that counts, results are NaN.

#include <cstdint>
#include <vector>

#include "keel/tasks/metric.h"

namespace keel {

enum class ClassQuotient : unsigned char { precision, recall, f1 };

enum class ClassAverage : unsigned char {
  binary,     // of class 1, of two
  macro,      // the mean of those classes that are guessed or wanted
  micro,      // of the counts of all classes together, which is the accuracy
  weighted,   // the mean by `wanted`
  per_class,  // "0", "1", ...; NaN for a class that is neither guessed nor wanted
};

class ClassScore : public SumMetric {
 public:
  // Classes are 0 to classes - 1, at least two; `binary` of another number is an Error.
  ClassScore(ClassQuotient quotient, ClassAverage average, std::int64_t classes);
  // Whole numbers of one shape; targets of -100 do not count. Other shapes, or a number that is no class, are an Error.
  void update(const Tensor& guesses, const Tensor& targets);
  std::vector<NamedNumber> result() const override;

 private:
  double right(std::int64_t c) const { return sum(static_cast<std::size_t>(3 * c)); }
  double guessed(std::int64_t c) const { return sum(static_cast<std::size_t>(3 * c + 1)); }
  double wanted(std::int64_t c) const { return sum(static_cast<std::size_t>(3 * c + 2)); }
  bool occurs(std::int64_t c) const { return guessed(c) + wanted(c) > 0; }
  double quotient(double right, double guessed, double wanted) const;
  double of_class(std::int64_t c) const { return quotient(right(c), guessed(c), wanted(c)); }
  double macro() const;
  double micro() const;
  double weighted() const;

  ClassQuotient quotient_;
  ClassAverage average_;
  std::int64_t classes_;
};

// How often class t was wanted and class g guessed: "t_g" for all classes. 8 bytes for each pair of classes travel with
// every batch.
class ConfusionCounts : public SumMetric {
 public:
  explicit ConfusionCounts(std::int64_t classes);
  // As above.
  void update(const Tensor& guesses, const Tensor& targets);
  std::vector<NamedNumber> result() const override;

 private:
  std::int64_t classes_;
};

// The fraction of rows whose every target that counts is guessed. A row without any is right.
class ExactMatch : public SumMetric {
 public:
  ExactMatch() : SumMetric(2) {}
  // Whole numbers of one shape, (rows, ...), else an Error that names both shapes; targets of -100 do not count.
  void update(const Tensor& guesses, const Tensor& targets);
  double rows() const { return sum(1); }
  std::vector<NamedNumber> result() const override;
};

}  // namespace keel
