// `keel race-demo`, with the emulator and without.

#include <gtest/gtest.h>

#include "keel/runtime/device_api.h"
#include "tests/cli/program.h"
#include "tests/pattern.h"

namespace keel::cli {
namespace {

using testing::Outcome;
using testing::run_keel;

TEST(RaceDemo, NamesKernelThreadsAndLinesOfTheMissingBarrierOrSaysHowToGetAnEmulator) {
  const Outcome outcome = run_keel("race-demo");
  if (count_devices(DeviceType::emulated).count == 0) {
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find("KEEL_CUDA=EMULATED"), std::string::npos) << outcome.err;
    return;
  }
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  const auto found = testing::first_match(
      outcome.out,
      R"(sum_without_barrier, block \(0, 0, 0\), thread \(([0-9]+), 0, 0\), [^ ]*cli/race_demo\.cu:[0-9]+: race on shared )"
      R"(memory: nothing orders this [a-z]+ after what thread \(([0-9]+), 0, 0\) did at [^ ]*cli/race_demo\.cu:[0-9]+$)");
  ASSERT_EQ(found.size(), 3u) << outcome.out;
  EXPECT_NE(found[1], found[2]);
  EXPECT_NE(outcome.out.find("the sum is 70 when threads run from the first to the last"), std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find("With it:\n  No complaint; the sum is 2080 and 2080"), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace keel::cli
