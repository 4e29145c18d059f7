#include "keel/trainer/curve_means.h"

#include <gtest/gtest.h>

#include <cmath>

#include "keel/runtime/error.h"
#include "keel/trainer/curve_file.h"

namespace keel {
namespace {

// A curve whose steps send 100 bytes and take half a second.
LossCurve made_up(const std::string& variant, std::uint64_t seed, const std::vector<double>& losses) {
  LossCurve curve{.variant = variant, .seed = seed};
  for (const double loss : losses) {
    const auto step = static_cast<std::int64_t>(curve.points.size()) + 1;
    curve.points.push_back({step, loss, 100 * step, 0.5 * static_cast<double>(step)});
  }
  return curve;
}

std::vector<double> falling(double first, int steps) {
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(first - i);
  return losses;
}

TEST(CurveMeans, AreMeansAndStandardDeviationsOfSeeds) {
  std::vector<LossCurve> curves = {made_up("plain", 1, {4, 2}), made_up("other", 1, {9, 9}),
                                   made_up("plain", 2, {5, 3}), made_up("plain", 3, {9, 4})};
  curves[2].points[1].bytes = 800;
  for (const std::size_t plain : {0, 2, 3}) curves[plain].points[1].validation_loss = static_cast<double>(plain);
  curves[0].points[0].validation_loss = 1;  // of one seed alone
  const std::vector<MeanCurve> means = mean_curves(curves);
  ASSERT_EQ(means.size(), 2u);
  EXPECT_EQ(means[0].variant, "plain");
  EXPECT_EQ(means[0].seeds, 3);
  EXPECT_DOUBLE_EQ(means[0].points[0].loss.mean, 6);
  EXPECT_DOUBLE_EQ(means[0].points[0].loss.deviation, std::sqrt((4 + 1 + 9) / 2.0));
  EXPECT_DOUBLE_EQ(means[0].points[1].bytes, (200 + 800 + 200) / 3.0);
  EXPECT_DOUBLE_EQ(means[0].points[1].seconds, 1);
  EXPECT_FALSE(means[0].points[0].validation_loss.has_value());
  EXPECT_DOUBLE_EQ(means[0].points[1].validation_loss.value().mean, 5 / 3.0);
  EXPECT_DOUBLE_EQ(means[0].final_loss.mean, (3 + 4 + 6.5) / 3) << "two steps are all there are";
  EXPECT_EQ(means[1].seeds, 1);
  EXPECT_EQ(means[1].points[0].loss.deviation, 0);
  EXPECT_THROW(mean_curves(std::vector{made_up("a", 1, {1}), made_up("a", 2, {1, 2})}), Error);
  EXPECT_THROW(mean_curves(std::vector{made_up("a", 1, {})}), Error);
}

TEST(CurveMeans, HaveTheDeviationOfNumbersThatAreCloseToEachOther) {
  EXPECT_DOUBLE_EQ(mean_of_seeds(std::vector{1e9, 1e9 + 1, 1e9 + 2}).deviation, 1);
  EXPECT_DOUBLE_EQ(mean_of_seeds(std::vector{1e9 + 3, 1e9}).deviation, std::sqrt(4.5));
  EXPECT_EQ(mean_of_seeds(std::vector{7.0}).deviation, 0);
}

// The loss of step i is 100 - (i - 1), so the mean of ten steps that end at step i is 105.5 - i.
TEST(CurveMeans, AreBelowALossWhereTheMeanOfTenStepsIsForTheFirstTime) {
  const MeanCurve curve = mean_curves(std::vector{made_up("plain", 1, falling(100, 30))}).front();
  EXPECT_DOUBLE_EQ(curve.final_loss.mean, 75.5);
  for (const auto& [loss, step] : {std::pair(85.6, 20), {85.5, 21}, {85.4, 21}, {95.6, 10}, {1000.0, 10}, {75.6, 30}}) {
    const MeanPoint* const point = first_below(curve, loss);
    ASSERT_NE(point, nullptr) << loss;
    EXPECT_EQ(point->step, step) << loss;
    EXPECT_EQ(point->bytes, 100.0 * step);
    EXPECT_EQ(point->seconds, 0.5 * step);
  }
  EXPECT_EQ(first_below(curve, 75.5), nullptr);
  std::vector<double> spike = falling(100, 30);
  spike[4] = -100;  // a single low loss moves a mean of ten by a tenth of it
  EXPECT_EQ(first_below(mean_curves(std::vector{made_up("plain", 1, spike)}).front(), 60), nullptr);
  const MeanCurve few = mean_curves(std::vector{made_up("plain", 1, {4, 2, 0})}).front();
  EXPECT_EQ(first_below(few, 2.1)->step, 3) << "of fewer steps all count";
  EXPECT_EQ(first_below(few, 2), nullptr);
}

// With the divisor n - 1, two values deviate by their distance over the root of 2, and one by nothing.
TEST(CurveMeans, HaveADeviationFromTwoSeedsOn) {
  EXPECT_DOUBLE_EQ(mean_of_seeds(std::vector<double>{1, 4}).deviation, 3 / std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(mean_of_seeds(std::vector<double>{1, 4}).mean, 2.5);
  EXPECT_EQ(mean_of_seeds(std::vector<double>{7}).deviation, 0);
  EXPECT_EQ(mean_of_seeds(std::vector<double>{7}).mean, 7);
}

TEST(CurveMeans, OfOneStepAreThatStep) {
  const MeanCurve one = mean_curves(std::vector{made_up("plain", 1, {4})}).front();
  EXPECT_EQ(one.final_loss.mean, 4);
  ASSERT_NE(first_below(one, 4.5), nullptr);
  EXPECT_EQ(first_below(one, 4.5)->step, 1);
  EXPECT_EQ(first_below(one, 4), nullptr);
  EXPECT_EQ(first_below({}, 4), nullptr) << "no step";
}

TEST(CurveFile, IsReadBackAsItWasWritten) {
  CurveFile file{.ranks = 4,
                 .network = {.link = {.delay = std::chrono::microseconds(20), .bandwidth = 1e8},
                             .outer = {.delay = std::chrono::microseconds(300), .bandwidth = 1e6},
                             .group = 2},
                 .curves = {made_up("plain", 1, {0.1, 1.0 / 3}), made_up("a \"b\"", 2, {5e-324, 2})}};
  file.curves[0].points[1].validation_loss = 2.0 / 7;
  const CurveFile read = parse_curve_file(to_json(file));
  EXPECT_EQ(read.curves, file.curves);
  EXPECT_EQ(read.ranks, 4);
  EXPECT_EQ(read.network.link.delay, file.network.link.delay);
  EXPECT_EQ(read.network.link.bandwidth, file.network.link.bandwidth);
  EXPECT_EQ(read.network.outer.delay, file.network.outer.delay);
  EXPECT_EQ(read.network.outer.bandwidth, file.network.outer.bandwidth);
  EXPECT_EQ(read.network.group, 2);
}

TEST(CurveFile, RefusesWhatIsNone) {
  const std::string good = to_json({.curves = {made_up("plain", 1, {1, 2})}});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    EXPECT_NE(text.find(from), std::string::npos) << text;
    return text.replace(text.find(from), from.size(), to);
  };
  for (const std::string& bad :
       {std::string("{}"), std::string("[1]"), good.substr(0, good.size() / 2), with("keel loss", "other"),
        with("\"version\":1", "\"version\":2"), with("[100,200]", "[100]"), with("\"seed\":1", "\"seed\":\"x\"")})
    EXPECT_THROW(parse_curve_file(bad), Error) << bad;
}

}  // namespace
}  // namespace keel
