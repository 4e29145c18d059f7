// The metrics of keel/tasks/metrics/: what is not defined, and what they refuse. Their numbers:
// golden_metrics_test.cpp; any number of ranks: tests/trainer/metric_laws_test.cpp.

#include <gtest/gtest.h>

#include <cmath>

#include "keel/data/token_batch.h"
#include "keel/runtime/file.h"
#include "keel/tasks/metrics/catalog.h"
#include "keel/tasks/metrics/classes.h"
#include "keel/tasks/metrics/numbers.h"
#include "keel/tasks/metrics/ranking.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::error_of;

const Context& context() {
  static const Context one = testing::context(1);
  return one;
}
Tensor wholes(const std::vector<std::int64_t>& values) { return from_values(context(), values, {std::ssize(values)}); }
Tensor floats(const std::vector<double>& values, const Dims& shape) {
  return testing::tensor_of(context(), values, shape);
}
Tensor floats(const std::vector<double>& values) { return floats(values, {std::ssize(values)}); }

// The result of a metric alone that `feed` has fed.
template <class M, class F, class... Args>
double result_of(const F& feed, Args&&... args) {
  Metrics metrics;
  M& metric = metrics.make<M>("own", std::forward<Args>(args)...);
  feed(metric);
  join_added(metrics, take_added(metrics));
  return metric.result().front().value;
}
template <class M, class... Args>
double result_of_nothing(Args&&... args) {
  return result_of<M>([](M&) {}, std::forward<Args>(args)...);
}

TEST(MetricsOfNothing, AreNoNumberButForSums) {
  for (const ClassQuotient quotient : {ClassQuotient::precision, ClassQuotient::recall, ClassQuotient::f1})
    for (const ClassAverage average : {ClassAverage::binary, ClassAverage::macro, ClassAverage::micro,
                                       ClassAverage::weighted, ClassAverage::per_class})
      EXPECT_TRUE(std::isnan(result_of_nothing<ClassScore>(quotient, average, 2)));
  EXPECT_TRUE(std::isnan(result_of_nothing<ExactMatch>()));
  EXPECT_TRUE(std::isnan(result_of_nothing<Auroc>(2)));
  EXPECT_TRUE(std::isnan(result_of_nothing<Auroc>(3)));
  EXPECT_TRUE(std::isnan(result_of_nothing<MeanAbsoluteError>()));
  EXPECT_TRUE(std::isnan(result_of_nothing<MeanSquaredError>(1, true)));
  EXPECT_TRUE(std::isnan(result_of_nothing<R2>()));
  EXPECT_TRUE(std::isnan(result_of_nothing<Perplexity>()));
  EXPECT_TRUE(std::isnan(result_of_nothing<Ndcg>()));
  EXPECT_EQ(result_of_nothing<ConfusionCounts>(2), 0);
  EXPECT_EQ(result_of_nothing<Total>(), 0);
  const auto all_ignored = [](ClassScore& score) {
    score.update(wholes({0, 1}), wholes({kIgnoreTarget, kIgnoreTarget}));
  };
  EXPECT_TRUE(std::isnan(result_of<ClassScore>(all_ignored, ClassQuotient::f1, ClassAverage::macro, 2)));
}

TEST(R2, OfASingleRowIsNoNumber) {
  EXPECT_TRUE(std::isnan(result_of<R2>([](R2& r2) { r2.update(floats({1}), floats({1})); })));
}

TEST(Auroc, LeavesOutClassesThatHaveNoneOrAll) {
  const auto two_of_three = [](Auroc& area) {
    area.update(floats({0.9, 0.1, 0, 0.2, 0.8, 0, 0.4, 0.6, 0}, {3, 3}), wholes({0, 1, 0}),
                std::vector<std::int64_t>{0, 1, 2});
  };
  EXPECT_EQ(result_of<Auroc>(two_of_three, 3), 1);
  const auto one_alone = [](Auroc& area) {
    area.update(floats({0.9, 0.1, 0.2, 0.8}, {2, 2}), wholes({1, 1}), std::vector<std::int64_t>{0, 1});
  };
  EXPECT_TRUE(std::isnan(result_of<Auroc>(one_alone, 2)));
}

TEST(Perplexity, IsTheExponentialOfTheMeanLoss) {
  const auto feed = [](Perplexity& perplexity) {
    perplexity.update(std::log(4.0), 3);
    perplexity.update(std::log(32.0), 1);
  };
  EXPECT_NEAR(result_of<Perplexity>(feed), 4 * std::pow(8, 0.25), 1e-12);
}

TEST(Perplexity, IsOfTheTargetsThatCountWhateverTheScoresAre) {
  const auto feed = [](Perplexity& perplexity) {
    perplexity.update(floats({0, 0, 3000, 3000, 9, 1}, {3, 2}), wholes({0, 1, kIgnoreTarget}));
    perplexity.update(floats({1, 2}, {1, 2}), wholes({kIgnoreTarget}));
  };
  EXPECT_NEAR(result_of<Perplexity>(feed), 2, 1e-12) << "both of two are equally likely";
  EXPECT_EQ(error_of([] {
              Perplexity().update(floats({1, 2}, {1, 2}), wholes({1, 0}));
            }),
            "scores (1, 2) and targets (2) must be (rows, ..., classes) and (rows, ...)");
  EXPECT_EQ(error_of([] {
              Perplexity().update(floats({1, 2}, {1, 2}), wholes({2}));
            }),
            "target 2 is none of the classes 0 to 1");
}

TEST(PrecisionAt, CountsPlacesThatAShortListHasNot) {
  const auto feed = [](RankingMetric& metric) {
    metric.update(floats({3, 2, 1}), floats({1, 0, 1}), wholes({7, 7, 7}), std::vector<std::int64_t>{0, 1, 2});
  };
  EXPECT_EQ(result_of<PrecisionAt>(feed, RankingOptions{.k = 2}), 1.0 / 2);
  EXPECT_EQ(result_of<PrecisionAt>(feed, RankingOptions{.k = 8}), 2.0 / 8);
  EXPECT_EQ(result_of<PrecisionAt>(feed, RankingOptions{}), 2.0 / 3);
}

TEST(ExactMatch, CountsRowsOfAnyShape) {
  const auto feed = [](ExactMatch& exact) {
    exact.update(wholes({1, 2, 3}), wholes({1, 0, kIgnoreTarget}));
    exact.update(from_values(context(), std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2}),
                 from_values(context(), std::vector<std::int32_t>{1, 2, kIgnoreTarget, 4, 5, 6, 0, 8}, {2, 2, 2}));
  };
  EXPECT_EQ(result_of<ExactMatch>(feed), 3.0 / 5);
}

TEST(RankingMetric, AListWithoutRelevantExamplesCountsAsSaid) {
  const auto feed = [](RankingMetric& metric) {
    metric.update(floats({3, 2, 1}), floats({1, 0, 0}), wholes({7, 7, 9}), std::vector<std::int64_t>{0, 1, 2});
  };
  const auto value = [&](WithoutRelevant rule) {
    return result_of<MeanReciprocalRank>(feed, RankingOptions{.without_relevant = rule});
  };
  EXPECT_EQ(value(WithoutRelevant::is_0), 0.5);
  EXPECT_EQ(value(WithoutRelevant::is_1), 1);
  EXPECT_EQ(value(WithoutRelevant::is_left_out), 1);
  EXPECT_EQ(error_of([&] { value(WithoutRelevant::is_error); }), "group 9 has no relevant example");
}

TEST(RankingMetric, EqualScoresStayInTheOrderOfExamplesAndNdcgSharesTheirGains) {
  const auto feed = [](RankingMetric& metric) {
    metric.update(floats({1, 1}), floats({0, 1}), wholes({0, 0}), std::vector<std::int64_t>{8, 3});
  };
  EXPECT_EQ(result_of<MeanReciprocalRank>(feed, RankingOptions{}), 1) << "example 3 comes first";
  EXPECT_NEAR(result_of<Ndcg>(feed, RankingOptions{}), (1 + 1 / std::log2(3)) / 2, 1e-12);
}

TEST(MetricsRefuse, OtherSizesInOneLineThatNamesThem) {
  Metrics metrics;
  auto& f1 = metrics.make<ClassScore>("f1", ClassQuotient::f1, ClassAverage::macro, 3);
  EXPECT_EQ(error_of([&] {
              f1.update(wholes({1, 2}), wholes({1}));
            }),
            "guesses and targets are whole numbers of one shape, not i64 (2) and i64 (1)");
  EXPECT_EQ(error_of([&] { f1.update(wholes({1, 3}), wholes({1, 2})); }), "guess 3 is none of the classes 0 to 2");
  EXPECT_EQ(error_of([&] { f1.update(wholes({1, 2}), wholes({1, -1})); }), "target -1 is none of the classes 0 to 2");
  EXPECT_NE(error_of([&] {
              f1.update(floats({1, 2}), wholes({1, 2}));
            }).find("f32 (2) and i64 (2)"),
            std::string::npos);
  auto& mse = metrics.make<MeanSquaredError>("mse", 2);
  EXPECT_EQ(error_of([&] {
              mse.update(floats({1, 2}, {1, 2}), floats({1, 2}, {2, 1}));
            }),
            "predictions (1, 2) and targets (2, 1) must both be rows of 2 numbers");
  EXPECT_NE(error_of([&] {
              mse.update(floats({1, 2, 3}, {1, 3}), floats({1, 2, 3}, {1, 3}));
            }).find("rows of 2"),
            std::string::npos);
  auto& area = metrics.make<Auroc>("auroc", 3);
  const std::vector<std::int64_t> one = {0};
  EXPECT_EQ(error_of([&] {
              area.update(floats({1, 2}, {1, 2}), wholes({1}), one);
            }),
            "scores (1, 2) and targets (1) must be (rows, 3) and (rows)");
  EXPECT_EQ(error_of([&] {
              area.update(floats({1, 2, 3}, {1, 3}), wholes({1}), {});
            }),
            "a metric of 1 rows was fed with the numbers of 0 examples");
  EXPECT_NE(error_of([&] {
              area.update(floats({1, std::nan(""), 3}, {1, 3}), wholes({1}), one);
            }).find("example 0"),
            std::string::npos);
  auto& rank = metrics.make<MeanReciprocalRank>("mrr");
  EXPECT_NE(error_of([&] { rank.update(floats({1}), floats({-1}), wholes({1}), one); }).find("at least 0"),
            std::string::npos);
  EXPECT_EQ(error_of([&] {
              rank.update(floats({1}), floats({1, 2}), wholes({1}), one);
            }),
            "scores (1), relevances (2) and groups (1) must all be (rows)");
}

TEST(MetricList, RefusesNamesItDoesNotKnow) {
  const auto complaint = [](const std::vector<std::string>& names, std::int64_t classes = 3) {
    return MetricList::complaint(names, MetricInput::classes, classes);
  };
  EXPECT_EQ(complaint({"accuracy", "f1_macro", "auroc"}), "");
  EXPECT_NE(
      complaint({"f1_marco"}).find("no metric 'f1_marco' for this task; did you mean 'f1_macro'? There are accuracy, "),
      std::string::npos)
      << complaint({"f1_marco"});
  EXPECT_NE(complaint({"rmse"}).find("there is no metric 'rmse'"), std::string::npos) << "it is of numbers";
  EXPECT_EQ(complaint({"accuracy", "recall_micro", "accuracy"}), "metric 'accuracy' is named twice");
  EXPECT_NE(complaint({"f1"}).find("metric 'f1': a binary score"), std::string::npos) << "of three classes";
  EXPECT_EQ(complaint({"f1"}, 2), "");
  for (const char* wrong : {"ndcg_", "ndcg_0", "ndcg_K", "ndcg_07", "ndcg_x", "ndcg_99999999999999999999", "hit_rate"})
    EXPECT_NE(MetricList::complaint({wrong}, MetricInput::lists, 1), "") << wrong;
  EXPECT_EQ(MetricList::complaint({"ndcg", "ndcg_10", "ndcg_5", "hit_rate_1"}, MetricInput::lists, 1), "");
  EXPECT_NE(error_of([] { MetricList({"none"}, MetricInput::numbers, 1); }).find("mae, mse, rmse, r2"),
            std::string::npos);
}

TEST(MetricCatalog, IsTheOneOfThePage) {
  const std::string page = read_text_file(KEEL_SOURCE_DIR "/docs/metrics.md");
  for (const MetricEntry& entry : metric_catalog()) {
    const std::string row = concat("| `", entry.name, "` | ", entry.summary, " |\n");
    EXPECT_NE(page.find(row), std::string::npos) << row;
  }
}

}  // namespace
}  // namespace keel
