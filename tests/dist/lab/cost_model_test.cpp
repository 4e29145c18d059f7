// Times of more ranks from those of few.

#include "keel/dist/lab/cost_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "keel/runtime/error.h"
#include "tests/dist/lab/sample_report.h"
#include "tests/temporary_folder.h"

namespace keel::lab {
namespace {

constexpr const char* kAlgorithms[] = {"ring", "direct", "ordered", "rhd", "tree", "flat"};

std::vector<CostPoint> made_up(const char* algorithm, const CostConstants& constants, std::initializer_list<int> ranks,
                               int ranks_per_node) {
  std::vector<CostPoint> points;
  for (const int n : ranks)
    for (double bytes = 8; bytes <= (1 << 26); bytes *= 8) {
      const int nodes = (n + ranks_per_node - 1) / ranks_per_node;
      const CostTerms terms = cost_terms("all_reduce", algorithm, n, nodes).value();
      points.push_back({n, nodes, bytes,
                        *constants.base_us + terms.inside_steps * *constants.inside_us +
                            terms.between_steps * *constants.between_us + terms.volume * bytes * *constants.byte_us});
    }
  return points;
}

TEST(CostModel, FindsTheConstantsThatMadeItsPoints) {
  const CostConstants truth{3, 2, 14, 1e-4};
  for (const char* algorithm : kAlgorithms) {
    if (std::string(algorithm) == "flat") continue;  // whose two steps no number of ranks tells from the base
    const auto points = made_up(algorithm, truth, {2, 4, 8, 16, 32}, 4);
    const CostModel model("all_reduce", algorithm, points);
    EXPECT_NEAR(*model.constants().base_us, 3, 1e-5) << algorithm;
    EXPECT_NEAR(*model.constants().inside_us, 2, 1e-5) << algorithm;
    EXPECT_NEAR(*model.constants().between_us, 14, 1e-5) << algorithm;
    EXPECT_NEAR(*model.constants().byte_us, 1e-4, 1e-10) << algorithm;
    EXPECT_LT(model.relative_error(), 1e-6);
  }
}

TEST(CostModel, PredictsMoreRanksOfWhatItKnowsAndSaysWhenThatIsFar) {
  const CostConstants truth{3, 2, 14, 1e-4};
  for (const char* algorithm : kAlgorithms) {
    const CostModel model("all_reduce", algorithm, made_up(algorithm, truth, {2, 4, 8}, 2));
    for (const CostPoint& point : made_up(algorithm, truth, {16, 64, 128}, 2)) {
      const Prediction prediction = model.predict(point.ranks, point.nodes, point.bytes);
      EXPECT_NEAR(prediction.us / point.us, 1, 1e-5) << algorithm << ' ' << point.ranks;
      EXPECT_LE(prediction.low_us, prediction.us);
      EXPECT_GE(prediction.high_us, prediction.us);
      EXPECT_EQ(prediction.is_extrapolated, point.ranks > 64);
    }
  }
}

TEST(CostModel, GivesAWiderIntervalToWhatIsFartherAndToWhatFitsLess) {
  const CostConstants truth{3, 2, 14, 1e-4};
  auto points = made_up("ring", truth, {2, 4, 8}, 2);
  for (std::size_t i = 0; i < points.size(); ++i) points[i].us *= i % 2 == 0 ? 1.1 : 0.9;
  const CostModel model("all_reduce", "ring", points);
  EXPECT_GT(model.relative_error(), 0.05);
  EXPECT_LT(model.relative_error(), 0.2);
  const auto width = [&](const CostModel& by, int ranks) {
    const Prediction prediction = by.predict(ranks, ranks / 2, 1 << 20);
    return prediction.high_us / prediction.low_us;
  };
  EXPECT_GT(width(model, 16), width(model, 8));
  EXPECT_GT(width(model, 64), width(model, 16));
  for (CostPoint& point : points) point.spread = 0.1;
  EXPECT_GT(width(CostModel("all_reduce", "ring", points), 8), width(model, 8));
}

// Medians that differ from the truth by a factor whose logarithm has the deviation `of_medians`, of calls that differ
// from their median by one of deviation `of_calls`. Counts the calls, of further measurements, that lie in the
// interval.
double share_in_interval(double of_medians, double of_calls) {
  const CostConstants truth{3, 2, 14, 1e-4};
  std::mt19937_64 engine(7);
  std::normal_distribution<double> normal;
  int inside = 0, all = 0;
  for (int model_number = 0; model_number < 200; ++model_number) {
    auto points = made_up("ring", truth, {2, 4, 8}, 2);
    const std::vector<CostPoint> true_points = points;
    for (CostPoint& point : points) {
      point.us *= std::exp(of_medians * normal(engine));
      point.spread = of_calls;
    }
    const CostModel model("all_reduce", "ring", points);
    for (const CostPoint& point : true_points) {
      const double call = point.us * std::exp(of_medians * normal(engine) + of_calls * normal(engine));
      const Prediction prediction = model.predict(point.ranks, point.nodes, point.bytes);
      inside += prediction.low_us <= call && call <= prediction.high_us;
      ++all;
    }
  }
  return static_cast<double>(inside) / all;
}

TEST(CostModel, ItsIntervalHoldsAsManyCallsAsItSays) {
  for (const auto& [of_medians, of_calls] : {std::pair(0.02, 0.0), {0.5, 0.0}, {0.02, 0.4}, {0.3, 0.3}})
    EXPECT_NEAR(share_in_interval(of_medians, of_calls), 0.95, 0.02) << of_medians << ' ' << of_calls;
}

// The same where a measurement as a whole lies off by a factor of deviation `of_measurements`, of which there are so
// many. Counts calls of further measurements.
double share_in_interval_of(int measurements, double of_measurements, double of_medians) {
  const CostConstants truth{3, 2, 14, 1e-4};
  std::mt19937_64 engine(11);
  std::normal_distribution<double> normal;
  int inside = 0, all = 0;
  for (int model_number = 0; model_number < 200; ++model_number) {
    const std::vector<CostPoint> true_points = made_up("ring", truth, {4}, 2);
    std::vector<CostPoint> points;
    for (int number = 0; number < measurements; ++number) {
      const double off = std::exp(of_measurements * normal(engine));
      for (CostPoint point : true_points) {
        point.us *= off * std::exp(of_medians * normal(engine));
        point.measurement = number;
        points.push_back(point);
      }
    }
    const CostModel model("all_reduce", "ring", points);
    const double off = std::exp(of_measurements * normal(engine));
    for (const CostPoint& point : true_points) {
      const double call = point.us * off * std::exp(of_medians * normal(engine));
      const Prediction prediction = model.predict(point.ranks, point.nodes, point.bytes);
      inside += prediction.low_us <= call && call <= prediction.high_us;
      ++all;
    }
  }
  return static_cast<double>(inside) / all;
}

TEST(CostModel, ItsIntervalHoldsFurtherMeasurementsOnceItHasSeenThatTheyDiffer) {
  for (const int measurements : {2, 3, 6})
    for (const auto& [of_measurements, of_medians] : {std::pair(0.3, 0.05), {0.3, 0.3}, {0.0, 0.2}})
      EXPECT_GT(share_in_interval_of(measurements, of_measurements, of_medians), 0.92)
          << measurements << ' ' << of_measurements << ' ' << of_medians;
  EXPECT_LT(share_in_interval_of(6, 0.3, 0.05), 0.98);
  EXPECT_LT(share_in_interval_of(1, 0.3, 0.05), 0.5) << "which one alone does not say";
}

TEST(CostModel, SaysHowFarMeasurementsOfTheSameRanksLieApart) {
  const CostConstants truth{3, 2, 14, 1e-4};
  std::vector<CostPoint> points = made_up("ring", truth, {4}, 2);
  EXPECT_FALSE(CostModel("all_reduce", "ring", points).measurement_spread());
  for (CostPoint other : std::vector(points)) {
    other.us *= std::exp(0.4);
    other.measurement = 1;
    points.push_back(other);
  }
  const CostModel twice("all_reduce", "ring", points);
  EXPECT_NEAR(*twice.measurement_spread(), 0.4 / std::sqrt(2.0), 1e-3);
  EXPECT_LT(twice.relative_error(), 1e-3) << "each fits by itself";
  std::vector<CostPoint> of_other_ranks = made_up("ring", truth, {8}, 2);
  for (CostPoint& each : of_other_ranks) each.measurement = 2;
  points.insert(points.end(), of_other_ranks.begin(), of_other_ranks.end());
  EXPECT_GT(*CostModel("all_reduce", "ring", points).measurement_spread(), 0.2);
}

// The mean of what is log-normal lies above its median, and that of its inverse below.
TEST(CostModel, NoiseMovesItNeitherUpNorDown) {
  const CostConstants truth{3, 2, 14, 1e-4};
  std::mt19937_64 engine(3);
  std::normal_distribution<double> normal;
  std::vector<CostPoint> points;
  for (int i = 0; i < 100; ++i)
    for (CostPoint point : made_up("ring", truth, {2, 4, 8}, 2)) {
      point.us *= std::exp(0.5 * normal(engine));
      points.push_back(point);
    }
  const CostModel model("all_reduce", "ring", points);
  EXPECT_NEAR(model.relative_error(), 0.5, 0.02);
  for (const CostPoint& point : made_up("ring", truth, {2, 8}, 2))
    EXPECT_NEAR(model.predict(point.ranks, point.nodes, point.bytes).us / point.us, 1, 0.08) << point.bytes;
}

TEST(CostModel, OfAsManyPointsAsConstantsKnowsTheSpreadOfCallsAlone) {
  const std::vector<CostPoint> points = {{2, 1, 8, 10, 0.1}, {2, 1, 1 << 20, 500, 0.3}};
  const CostModel model("all_reduce", "ring", points);
  for (const CostPoint& point : points) {
    const Prediction prediction = model.predict(point.ranks, point.nodes, point.bytes);
    EXPECT_NEAR(prediction.high_us / prediction.us, std::exp(1.96 * point.spread), 1e-4);
    EXPECT_NEAR(prediction.us / prediction.low_us, std::exp(1.96 * point.spread), 1e-4);
  }
}

TEST(CostModel, HasNoNegativeConstantsAndOneNumberOfRanksGivesThemToSteps) {
  // Larger tensors that cost less: only what does not depend on size fits.
  const CostModel falling("all_reduce", "ring", std::vector<CostPoint>{{2, 1, 8, 10}, {2, 1, 1 << 20, 5}});
  EXPECT_EQ(*falling.constants().byte_us, 0);
  EXPECT_EQ(*falling.constants().base_us, 0);
  EXPECT_GT(*falling.constants().inside_us, 0);
}

TEST(CostModel, RefusesWhatHasNoFormulaOrNoPoints) {
  using testing::error_of;
  const std::vector<CostPoint> points = {{2, 1, 8, 10}};
  EXPECT_NE(error_of([&] { CostModel("all_reduce", "backend", points); }).find("no formula"), std::string::npos);
  EXPECT_NE(error_of([&] { CostModel("broadcast", "ordered", points); }).find("no formula"), std::string::npos);
  EXPECT_NE(error_of([&] { CostModel("all_reduce", "ring", {}); }).find("nothing was measured"), std::string::npos);
  EXPECT_NE(error_of([&] { CostModel("all_reduce", "ring", points).predict(2, 3, 8); }), "");
}

TEST(CostModel, TakesItsPointsFromAReport) {
  const Report report = sample_report();
  const std::vector<CostPoint> points = cost_points(std::span(&report, 1), "all_reduce", "ring", "f32");
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].ranks, 3);
  EXPECT_EQ(points[0].nodes, 2);
  EXPECT_EQ(points[0].bytes, 12'000);
  EXPECT_EQ(points[0].us, report.records[1].out_of_place->p50_us);
  EXPECT_NEAR(points[0].spread, std::log(1.05 / 0.95) / 1.349, 1e-4) << "a normal distribution's quartiles";
  EXPECT_TRUE(cost_points(std::span(&report, 1), "all_reduce", "ring", "f64").empty());
  const std::vector<Report> twice = {report, report};
  const std::vector<CostPoint> of_both = cost_points(twice, "all_reduce", "ring", "f32");
  ASSERT_EQ(of_both.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(of_both[i].measurement, i < 2 ? 0 : 1);
}

// Acceptance check 15: all-reduce of 1 GiB fp32 on Polaris, 4 A100 and one Slingshot network a node, NCCL 2.21 (public
// logs, argonne-lcf/alcf-nccl-tests). From 2 and 8 nodes, and the 14 us of NCCL's tuning table for a step of its ring
// between nodes (NCCL 2.30.7, src/graph/tuning.cc: Simple), with none inside: 256 and 540 nodes.
TEST(CostModel, ReplaysPolarisFromEightNodesTo540) {
  constexpr double kGibibyte = 1 << 30;
  const std::vector<CostPoint> calibration = {{8, 2, kGibibyte, 51'310}, {32, 8, kGibibyte, 57'191}};
  const CostModel model("all_reduce", "ring", calibration, {.inside_us = 0, .between_us = 14});
  for (const auto& [nodes, measured] : {std::pair(256, 69'398.0), std::pair(540, 73'737.0)}) {
    const Prediction prediction = model.predict(4 * nodes, nodes, kGibibyte);
    EXPECT_LT(std::abs(prediction.us / measured - 1), 0.10) << nodes << " nodes: " << prediction.us;
    EXPECT_TRUE(prediction.is_extrapolated);
  }
  // Bandwidth alone, as if steps cost nothing, is what misleads there.
  const CostModel flat("all_reduce", "ring", calibration, {.base_us = 0, .inside_us = 0, .between_us = 0});
  EXPECT_LT(flat.predict(2160, 540, kGibibyte).us, 0.85 * 73'737);
}

}  // namespace
}  // namespace keel::lab
