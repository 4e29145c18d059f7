#include "keel/runtime/work_timer.h"

#include <gtest/gtest.h>

#include "tests/support.h"

namespace keel {
namespace {

void work_for_a_while() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(200);
  while (std::chrono::steady_clock::now() < end) {}
}

TEST(WorkTimer, AddsUpWhatLiesBetweenStartAndStop) {
  WorkTimer timer(testing::context(1));
  EXPECT_EQ(timer.milliseconds(), 0);
  {
    const WorkTimer::Scope timing(timer);
    work_for_a_while();
  }
  const double once = timer.milliseconds();
  EXPECT_GE(once, 0.2);
  work_for_a_while();
  timer.stop();
  EXPECT_EQ(timer.milliseconds(), once) << "it did not run";
  timer.start();
  work_for_a_while();
  timer.start();  // it runs already
  timer.stop();
  EXPECT_GE(timer.milliseconds(), once + 0.2);
}

}  // namespace
}  // namespace keel
