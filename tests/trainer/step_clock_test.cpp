// Times of steps, on a clock that the tests move.

#include "keel/trainer/step_clock.h"

#include <gtest/gtest.h>

namespace keel {
namespace {

TEST(StepClock, GivesEachRecordTheStepsSinceTheOneBefore) {
  StepClock clock;
  clock.begin(100, 1000);
  clock.end_step(100.5, 1100);
  StepClock::Interval times = clock.take_interval();
  EXPECT_DOUBLE_EQ(times.step_ms, 500);
  EXPECT_DOUBLE_EQ(times.exposed_ms, 100);
  clock.end_step(101.5, 1400);
  clock.end_step(103.5, 1800);
  times = clock.take_interval();
  EXPECT_DOUBLE_EQ(times.step_ms, 1500);
  EXPECT_DOUBLE_EQ(times.exposed_ms, 350);
}

TEST(StepClock, CountsNothingBetweenAnEndAndABeginning) {
  StepClock clock;
  clock.begin(0, 0);
  clock.end_step(1, 10);
  clock.begin(60, 5000);  // after an evaluation, in which ranks wait for each other, too
  clock.end_step(62, 5030);
  const StepClock::Interval times = clock.take_interval();
  EXPECT_DOUBLE_EQ(times.step_ms, 1500);
  EXPECT_DOUBLE_EQ(times.exposed_ms, 20);
}

// One fast step is one of many.
TEST(StepClock, ItsMeanForgetsTheFirstStepAsItForgetsOthers) {
  StepClock clock;
  clock.begin(0, 0);
  double now = 0;
  for (int step = 0; step < 10; ++step) {
    now += step == 0 ? 0.001 : 1;
    clock.end_step(now, 0);
    if (step == 0) { EXPECT_DOUBLE_EQ(clock.mean_seconds(), 0.001); }
  }
  EXPECT_GT(clock.mean_seconds(), 0.9);
  EXPECT_LT(clock.mean_seconds(), 1);
}

}  // namespace
}  // namespace keel
