#pragma once
// Metrics that need all examples at once: the area under the ROC curve, and ranked lists.

#include <cstdint>
#include <span>
#include <vector>

#include "keel/tasks/metric.h"

namespace keel {

// The area under the ROC curve: how often an example of a class has a higher score than one of another, where equal
// scores count half (Fawcett 2006, "An introduction to ROC analysis"; by ranks, as Mann and Whitney 1947). Of two
// classes it is that of class 1. Of more it is the mean over classes, each against all others (one-vs-rest, macro).
// Classes whose examples are all, or none, are left out of that mean; without others it is NaN.
class Auroc : public ListMetric {
 public:
  // At least two classes.
  explicit Auroc(std::int64_t classes);
  // `scores`: floating (rows, classes). Of two classes, probabilities or what softmax makes them of; of more,
  // probabilities, as scores of different rows are compared. `targets`: whole numbers (rows), of which -100 does not
  // count. `examples`: batch.examples(). Other shapes, or a target that is no class, are an Error.
  void update(const Tensor& scores, const Tensor& targets, std::span<const std::int64_t> examples);
  std::vector<NamedNumber> result() const override;

 private:
  std::int64_t classes_;
};

// What a list without any relevant example counts as.
enum class WithoutRelevant : unsigned char { is_0, is_1, is_left_out, is_error };

struct RankingOptions {
  std::int64_t k = 0;  // of each list, the first k count; 0: all
  WithoutRelevant without_relevant = WithoutRelevant::is_0;
};

// A mean over lists. The examples of one group are a list, which scores put into order, the highest first. Without a
// list the result is NaN. An example is relevant where its relevance is above 0. Equal scores stay in the order of
// examples, unless said otherwise.
class RankingMetric : public ListMetric {
 public:
  // Scores and relevances: floating (rows), the latter finite and at least 0; groups, such as numbers of queries: whole
  // (rows). Else an Error.
  void update(const Tensor& scores, const Tensor& relevance, const Tensor& groups,
              std::span<const std::int64_t> examples);
  std::vector<NamedNumber> result() const override;

 protected:
  struct Ranked {
    double score = 0, relevance = 0;
  };
  explicit RankingMetric(const RankingOptions& options);
  std::size_t first_of(std::size_t size) const;  // how many count
  // What is divided by where each place counts alike.
  double places_of(std::size_t size) const { return static_cast<double>(options_.k == 0 ? size : options_.k); }

 private:
  // Of a list with a relevant example, in order.
  virtual double of_list(std::span<const Ranked> list) const = 0;
  double value_without_relevant(std::int64_t group) const;

  RankingOptions options_;
};

// Mean average precision (MAP): the sum, over relevant places r among the first k, of relevant examples up to r by r,
// divided by all relevant examples of the list (Manning, Raghavan and Schuetze 2008, section 8.4).
class MeanAveragePrecision : public RankingMetric {
 public:
  explicit MeanAveragePrecision(const RankingOptions& options = {}) : RankingMetric(options) {}

 private:
  double of_list(std::span<const Ranked> list) const override;
};

// Mean reciprocal rank (MRR): 1 by the place of the first relevant example; 0 where the first k have none.
class MeanReciprocalRank : public RankingMetric {
 public:
  explicit MeanReciprocalRank(const RankingOptions& options = {}) : RankingMetric(options) {}

 private:
  double of_list(std::span<const Ranked> list) const override;
};

// Hit rate (HR@k): 1 where a relevant example is among the first k, else 0.
class HitRate : public RankingMetric {
 public:
  explicit HitRate(const RankingOptions& options) : RankingMetric(options) {}

 private:
  double of_list(std::span<const Ranked> list) const override;
};

// Precision at K (P@k): relevant examples among the first k by k, also where the list is shorter (Manning, Raghavan and
// Schuetze 2008, section 8.4).
class PrecisionAt : public RankingMetric {
 public:
  explicit PrecisionAt(const RankingOptions& options) : RankingMetric(options) {}

 private:
  double of_list(std::span<const Ranked> list) const override;
};

// Normalised discounted cumulative gain: the sum over the first k places r, from 1, of relevance / log2(r + 1), divided
// by that of the best order (Jarvelin and Kekalainen 2002). Examples of equal scores share their gains, as in
// scikit-learn's ndcg_score (McSherry and Najork 2008).
class Ndcg : public RankingMetric {
 public:
  explicit Ndcg(const RankingOptions& options = {}) : RankingMetric(options) {}

 private:
  double of_list(std::span<const Ranked> list) const override;
  double gain_of(std::span<const Ranked> list) const;
};

}  // namespace keel
