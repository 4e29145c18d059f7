// The search along a line by the steps that it tries, where losses and slopes are told it one by one.

#include "keel/optim/line_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace keel {
namespace {

constexpr LinePoint kStart{.step = 0, .loss = 0, .slope = -1};

// What the points have, in the order in which they are asked for; the last one for all that follow.
struct Told {
  double loss, slope;
};

struct Searched {
  std::vector<LinePoint> points;  // from the start on
  LineSearch result;

  double step(std::size_t i) const { return points.at(i).step; }
};

Searched search(const std::vector<Told>& told, const WolfeOptions& options = {}) {
  Searched searched{.points = {kStart}, .result = {}};
  const auto at = [&](double step) {
    const Told& each = told[std::min(searched.points.size(), told.size()) - 1];
    searched.points.push_back({.step = step, .loss = each.loss, .slope = each.slope});
    return searched.points.back();
  };
  searched.result = strong_wolfe(at, kStart, 1, 1, options);
  EXPECT_EQ(searched.result.evaluations + 1, std::ssize(searched.points));
  return searched;
}

// Where p(t) = c t^3 + b t^2 + ..., t from 0 to 1 between the points, has its lowest point: the cubic of Hermite.
double lowest(const LinePoint& a, const LinePoint& b) {
  const double width = b.step - a.step, rise = b.loss - a.loss, begins = a.slope * width, ends = b.slope * width;
  const double cubic = begins + ends - 2 * rise, square = 3 * rise - 2 * begins - ends;
  const double t =
      cubic == 0 ? -begins / (2 * square) : (-square + std::sqrt(square * square - 3 * cubic * begins)) / (3 * cubic);
  return a.step + width * t;
}

TEST(LineSearch, EndsAtOnceWhereTheFirstTrialIsGood) {
  for (const Told& good : {Told{-0.5, 0}, {-0.5, 0.9}, {-0.5, -0.9}, {-1e-4, 0}}) {
    const Searched searched = search({good});
    EXPECT_EQ(searched.points.size(), 2U);
    EXPECT_EQ(searched.result.point.loss, good.loss);
  }
}

TEST(LineSearch, TriesTheLowestPointOfTheCubicBetweenTheEnds) {
  for (const Told& first : {Told{1, 2}, {0.5, 1}, {-0.5, 0.95}, {-0.00009, -0.1}}) {
    const Searched searched = search({first, {-0.6, 0}});
    ASSERT_EQ(searched.points.size(), 3U);
    EXPECT_NEAR(searched.step(2), lowest(kStart, searched.points[1]), 1e-12);
    EXPECT_EQ(searched.result.point.step, searched.step(2));
  }
}

TEST(LineSearch, KeepsTheEndThatIsLowerAndTheSideWhereTheLossFalls) {
  // The third trial lies on the side of the second to which its slope points.
  for (const double slope : {-0.95, 0.95}) {
    const Searched searched = search({{0.5, 1}, {-0.2, slope}, {-0.6, 0}});
    ASSERT_EQ(searched.points.size(), 4U);
    const LinePoint &middle = searched.points[2], &first = searched.points[1];
    EXPECT_NEAR(searched.step(3), slope < 0 ? lowest(middle, first) : lowest(kStart, middle), 1e-12);
  }
  // Where the lower end is the right one, too.
  for (const double slope : {-0.95, 0.95}) {
    const Searched searched = search({{-0.5, 0.95}, {-0.6, slope}, {-0.7, 0}});
    ASSERT_EQ(searched.points.size(), 4U);
    const LinePoint &middle = searched.points[2], &first = searched.points[1];
    EXPECT_NEAR(searched.step(3), slope < 0 ? lowest(middle, first) : lowest(kStart, middle), 1e-12);
  }
  // One that is as high as the lower end becomes the other end.
  const Searched equal = search({{-0.2, 0.95}, {-0.2, -0.95}, {-0.6, 0}});
  EXPECT_NEAR(equal.step(3), lowest(equal.points[2], equal.points[1]), 1e-12);
}

TEST(LineSearch, GoesOnBeyondATrialThatStillFallsByTenTimesAtMost) {
  const WolfeOptions strict{.curvature = 0.1};
  const Searched inside = search({{-0.9, -0.8}, {-2.5, 0}}, strict);  // -s + s^2 / 10 is lowest at 5
  EXPECT_NEAR(inside.step(2), 5, 1e-12);
  const Searched far = search({{-0.98, -0.96}, {-5, 0}});  // -s + s^2 / 50, at 25
  EXPECT_EQ(far.step(2), 10);
  const Searched near = search({{-50, -0.2}, {-60, 0}}, strict);  // a cubic that is lowest before
  EXPECT_EQ(near.step(2), 1.01);
  const Searched nowhere = search({{-0.9, -0.95}, {-60, 0}}, strict);  // one that falls everywhere
  EXPECT_NEAR(nowhere.step(2), (1.01 + 10) / 2, 1e-12);
}

TEST(LineSearch, OfALossThatFallsForEverEndsWithItsTrials) {
  for (const int trials : {0, 1, 2, 7, 25}) {
    std::vector<Told> line;
    for (int i = 0; i < 100; ++i) line.push_back({-std::pow(10, i), -1});
    const Searched searched = search(line, {.most_trials = trials});
    EXPECT_EQ(searched.result.evaluations, trials + 1);
    EXPECT_EQ(searched.result.point.step, searched.points.back().step) << "the lowest";
    for (std::size_t i = 1; i < searched.points.size(); ++i)
      EXPECT_DOUBLE_EQ(searched.step(i), std::pow(10, i - 1)) << "a line has no lowest point";
  }
}

TEST(LineSearch, TakesTwoTrialsOfOneHeightForABracketFromTheThirdOn) {
  const Searched second = search({{-1, -1}, {-1, -1}, {-3, -1}, {-4, 0}});
  EXPECT_GT(second.step(3), second.step(2));
  const Searched third = search({{-1, -1}, {-2, -1}, {-2, -1}, {-4, 0}});
  EXPECT_GT(third.step(4), third.step(2));
  EXPECT_LT(third.step(4), third.step(3));
}

// A trial nearer to an end than a tenth of the bracket is made once; the next such one is moved to that tenth.
TEST(LineSearch, MovesEverySecondTrialThatIsNearAnEndInwards) {
  const Searched left = search({{100, 200}, {0.5, 1}, {0.5, 100}, {0.5, 1000}, {-1e-3, 0}});
  ASSERT_EQ(left.points.size(), 6U);
  EXPECT_NEAR(left.step(2), lowest(kStart, left.points[1]), 1e-12);
  EXPECT_LT(left.step(2), 0.1);
  EXPECT_NEAR(left.step(3), 0.1 * left.step(2), 1e-15);
  EXPECT_NEAR(left.step(4), lowest(kStart, left.points[3]), 1e-15) << "after one that was moved none is slow";
  EXPECT_NEAR(left.step(5), 0.1 * left.step(4), 1e-15);
  const WolfeOptions strict{.curvature = 1e-3};
  const Searched right = search({{-0.5, 0.01}, {-0.49, -2}, {-0.6, 0}}, strict);
  ASSERT_EQ(right.points.size(), 4U);
  EXPECT_NEAR(right.step(2), lowest(kStart, right.points[1]), 1e-12);
  EXPECT_GT(right.step(2), 0.9);
  EXPECT_NEAR(right.step(3), 1 - 0.1 * (1 - right.step(2)), 1e-12);
  // At the end itself the first one is moved: a cubic that falls on beyond it.
  const Searched beyond = search({{-1.2, -0.7}, {-1.6, 0}}, {.decrease = 1.5, .curvature = 0.1});
  EXPECT_NEAR(beyond.step(2), 0.9, 1e-12);
  // In the middle none is moved.
  const Searched middle = search({{0.5, 1}, {0.2, 0.5}, {0.1, 0.5}, {-0.6, 0}});
  for (std::size_t i = 2; i < middle.points.size(); ++i)
    EXPECT_NEAR(middle.step(i), lowest(kStart, middle.points[i - 1]), 1e-12);
}

TEST(LineSearch, EndsWhereTheBracketIsTooShortForAnyWeight) {
  EXPECT_EQ(search({{1, 2}, {-0.6, 0}}, {.shortest = 1.01}).points.size(), 2U);
  EXPECT_EQ(search({{1, 2}, {-0.6, 0}}, {.shortest = 1}).points.size(), 3U);
  // From 1 to 10.
  const std::vector<Told> far = {{-0.98, -0.96}, {5, 1}, {-2, 0}};
  EXPECT_EQ(search(far, {.shortest = 9.1}).points.size(), 3U);
  EXPECT_EQ(search(far, {.shortest = 9}).points.size(), 4U);
}

}  // namespace
}  // namespace keel
