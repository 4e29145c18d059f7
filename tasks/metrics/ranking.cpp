#include "keel/tasks/metrics/ranking.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "keel/data/token_batch.h"
#include "keel/runtime/error.h"
#include "keel/tasks/metrics/values.h"

namespace keel {
namespace {

void check_examples(std::int64_t rows, std::span<const std::int64_t> examples) {
  KEEL_CHECK(std::ssize(examples) == rows, "a metric of ", rows, " rows was fed with the numbers of ", examples.size(),
             " examples");
}

// By ranks, each doubled so that the mean rank of equal scores is whole. NaN where all are positive, or none.
double area(std::vector<std::pair<double, bool>> scores) {
  std::sort(scores.begin(), scores.end());
  double ranks = 0, positive = 0;
  for (std::size_t begin = 0, end = 0; begin < scores.size(); begin = end) {
    double own = 0;
    for (; end < scores.size() && scores[end].first == scores[begin].first; ++end) own += scores[end].second ? 1 : 0;
    ranks += own * static_cast<double>(begin + 1 + end);
    positive += own;
  }
  const double negative = static_cast<double>(scores.size()) - positive;
  if (positive == 0 || negative == 0) return kUndefined;
  return (ranks - positive * (positive + 1)) / (2 * positive * negative);
}

}  // namespace

Auroc::Auroc(std::int64_t classes)
    : ListMetric(classes == 2 ? 2 : static_cast<std::size_t>(classes + 1)), classes_(classes) {
  KEEL_CHECK(classes >= 2, "an area under the ROC curve needs two classes at least, not ", classes);
}

void Auroc::update(const Tensor& scores, const Tensor& targets, std::span<const std::int64_t> examples) {
  KEEL_CHECK(targets.rank() == 1 && scores.shape() == Dims({targets.dim(0), classes_}), "scores ", scores.shape(),
             " and targets ", targets.shape(), " must be (rows, ", classes_, ") and (rows)");
  check_examples(targets.dim(0), examples);
  const std::vector<double> all = floating_numbers(scores);
  const std::vector<std::int64_t> wanted = whole_values(targets);
  const auto width = static_cast<std::size_t>(classes_);
  for (std::size_t row = 0; row < wanted.size(); ++row) {
    if (wanted[row] == kIgnoreTarget) continue;
    KEEL_CHECK(wanted[row] >= 0 && wanted[row] < classes_, "target ", wanted[row], " is none of the classes 0 to ",
               classes_ - 1);
    const auto own = std::span(all).subspan(row * width, width);
    for (const double score : own)
      KEEL_CHECK(!std::isnan(score), "a score of example ", examples[row],
                 " is no number, and has no place in an order");
    std::vector<double> values(own.begin(), own.end());
    if (classes_ == 2) values = {own[1] - own[0]};
    values.push_back(static_cast<double>(wanted[row]));
    add(examples[row], values);
  }
}

std::vector<NamedNumber> Auroc::result() const {
  const std::vector<std::span<const double>> rows = in_order();
  const auto of_class = [&](std::size_t column, std::int64_t c) {
    std::vector<std::pair<double, bool>> scores;
    for (const std::span<const double> row : rows)
      scores.emplace_back(row[column], row.back() == static_cast<double>(c));
    return area(std::move(scores));
  };
  if (classes_ == 2) return {{"", of_class(0, 1)}};
  double total = 0, count = 0;
  for (std::int64_t c = 0; c < classes_; ++c) {
    const double own = of_class(static_cast<std::size_t>(c), c);
    if (std::isnan(own)) continue;
    total += own;
    ++count;
  }
  return {{"", ratio_of(total, count)}};
}

RankingMetric::RankingMetric(const RankingOptions& options) : ListMetric(3), options_(options) {
  KEEL_CHECK(options.k >= 0, "the first ", options.k, " of a list are none; k is at least 1, or 0 for all");
}

std::size_t RankingMetric::first_of(std::size_t size) const {
  return options_.k == 0 ? size : std::min(size, static_cast<std::size_t>(options_.k));
}

void RankingMetric::update(const Tensor& scores, const Tensor& relevance, const Tensor& groups,
                           std::span<const std::int64_t> examples) {
  KEEL_CHECK(scores.rank() == 1 && relevance.shape() == scores.shape() && groups.shape() == scores.shape(), "scores ",
             scores.shape(), ", relevances ", relevance.shape(), " and groups ", groups.shape(), " must all be (rows)");
  check_examples(scores.dim(0), examples);
  const std::vector<double> score = floating_numbers(scores), gain = floating_numbers(relevance);
  const std::vector<std::int64_t> group = whole_values(groups);
  for (std::size_t row = 0; row < score.size(); ++row) {
    KEEL_CHECK(!std::isnan(score[row]), "the score of example ", examples[row],
               " is no number, and has no place in an order");
    KEEL_CHECK(gain[row] >= 0 && std::isfinite(gain[row]), "the relevance of example ", examples[row], " is ",
               gain[row], "; it is finite and at least 0");
    const double values[] = {static_cast<double>(group[row]), score[row], gain[row]};
    add(examples[row], values);
  }
}

double RankingMetric::value_without_relevant(std::int64_t group) const {
  KEEL_CHECK(options_.without_relevant != WithoutRelevant::is_error, "group ", group, " has no relevant example");
  return options_.without_relevant == WithoutRelevant::is_1 ? 1 : 0;
}

std::vector<NamedNumber> RankingMetric::result() const {
  std::map<double, std::vector<Ranked>> lists;
  for (const std::span<const double> row : in_order()) lists[row[0]].push_back({row[1], row[2]});
  double total = 0, count = 0;
  for (auto& [group, list] : lists) {
    const bool has_relevant = std::ranges::any_of(list, [](const Ranked& each) { return each.relevance > 0; });
    if (!has_relevant && options_.without_relevant == WithoutRelevant::is_left_out) continue;
    std::ranges::stable_sort(list, std::ranges::greater(), &Ranked::score);
    total += has_relevant ? of_list(list) : value_without_relevant(static_cast<std::int64_t>(group));
    ++count;
  }
  return {{"", ratio_of(total, count)}};
}

double MeanAveragePrecision::of_list(std::span<const Ranked> list) const {
  double total = 0, found = 0, relevant = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].relevance <= 0) continue;
    ++relevant;
    if (i < first_of(list.size())) total += ++found / static_cast<double>(i + 1);
  }
  return total / relevant;
}

double MeanReciprocalRank::of_list(std::span<const Ranked> list) const {
  for (std::size_t i = 0; i < first_of(list.size()); ++i)
    if (list[i].relevance > 0) return 1 / static_cast<double>(i + 1);
  return 0;
}

double HitRate::of_list(std::span<const Ranked> list) const {
  const auto first = list.first(first_of(list.size()));
  return std::ranges::any_of(first, [](const Ranked& each) { return each.relevance > 0; }) ? 1 : 0;
}

double PrecisionAt::of_list(std::span<const Ranked> list) const {
  const auto first = list.first(first_of(list.size()));
  const auto relevant = std::ranges::count_if(first, [](const Ranked& each) { return each.relevance > 0; });
  return static_cast<double>(relevant) / places_of(list.size());
}

double Ndcg::gain_of(std::span<const Ranked> list) const {
  const std::size_t counted = first_of(list.size());
  double total = 0;
  for (std::size_t begin = 0, end = 0; begin < counted; begin = end) {
    double gains = 0, discounts = 0;
    for (; end < list.size() && list[end].score == list[begin].score; ++end) {
      gains += list[end].relevance;
      if (end < counted) discounts += 1 / std::log2(static_cast<double>(end + 2));
    }
    total += gains / static_cast<double>(end - begin) * discounts;
  }
  return total;
}

double Ndcg::of_list(std::span<const Ranked> list) const {
  std::vector<Ranked> best;
  for (const Ranked& each : list) best.push_back({each.relevance, each.relevance});
  std::ranges::stable_sort(best, std::ranges::greater(), &Ranked::score);
  return gain_of(list) / gain_of(best);
}

}  // namespace keel
