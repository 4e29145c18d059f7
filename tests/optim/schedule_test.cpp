#include "keel/optim/schedule.h"

#include <gtest/gtest.h>

namespace keel {
namespace {

TEST(RateSchedule, WarmsUpInEqualStepsToThePeak) {
  const RateSchedule schedule{.decay = Decay::constant, .warmup = 4};
  for (std::int64_t done = 0; done <= 4; ++done)
    EXPECT_DOUBLE_EQ(schedule.factor(done), static_cast<double>(done + 1) / 5);
  EXPECT_EQ(schedule.factor(1000), 1);
}

TEST(RateSchedule, CosineFallsFromThePeakOverTheMiddleToItsEnd) {
  const RateSchedule schedule{.decay = Decay::cosine, .warmup = 10, .steps = 110, .final_factor = 0.1};
  EXPECT_DOUBLE_EQ(schedule.factor(10), 1);
  EXPECT_DOUBLE_EQ(schedule.factor(60), 0.55);
  EXPECT_DOUBLE_EQ(schedule.factor(110), 0.1);
  EXPECT_DOUBLE_EQ(schedule.factor(5000), 0.1);
  for (std::int64_t done = 10; done < 110; ++done) EXPECT_GT(schedule.factor(done), schedule.factor(done + 1));
}

TEST(RateSchedule, LinearFallsByEqualSteps) {
  const RateSchedule schedule{.decay = Decay::linear, .warmup = 0, .steps = 4, .final_factor = 0};
  for (std::int64_t done = 0; done <= 4; ++done)
    EXPECT_DOUBLE_EQ(schedule.factor(done), 1 - static_cast<double>(done) / 4);
}

TEST(RateSchedule, OfWarmUpAloneEndsAtItsFinalFactor) {
  const RateSchedule schedule{.decay = Decay::cosine, .warmup = 3, .steps = 3, .final_factor = 0.5};
  EXPECT_DOUBLE_EQ(schedule.factor(2), 0.75);
  EXPECT_DOUBLE_EQ(schedule.factor(3), 0.5);
}

}  // namespace
}  // namespace keel
