#include "keel/dist/comm/slow_transport.h"

#include <gtest/gtest.h>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/regroup.h"
#include "tests/dist/comm/ranks.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace testing;
using Clock = std::chrono::steady_clock;

// The time of an all-reduce of so many numbers, whose sum is checked.
double seconds_of(Communicator& ranks, std::int64_t count) {
  const Context context = testing::context(1);
  const Tensor x =
      from_values(context, std::vector<float>(static_cast<std::size_t>(count), 1.0F + ranks.rank()), {count});
  const Clock::time_point began = Clock::now();
  ranks.all_reduce(x).wait();
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  for (const double value : doubles(x)) EXPECT_EQ(value, ranks.size() * (ranks.size() + 1) / 2);
  return seconds;
}

// The signature and each step of the algorithm take a delay; a rank's bytes leave it one after the other.
TEST(EmulatedLink, TakesTheDelayOfEachStepAndTheTimeOfEveryByte) {
  const Link link{.delay = std::chrono::milliseconds(3), .bandwidth = 4e6};
  constexpr std::int64_t kCount = 12'000;  // 48,000 bytes: 12 ms to send once
  for (const int n : {2, 3, 4}) {
    KEEL_NEEDS_RANKS(n);
    for (const Algorithm* const algorithm : algorithms())
      on_ranks(n, [&](Communicator& ranks) {
        const auto slow = ranks.regroup({.algorithm = std::string(algorithm->name), .link = link});
        const Schedule schedule = algorithm->all_reduce({.rank = ranks.rank(), .size = n, .count = kCount});
        const double bytes = static_cast<double>(schedule.elements_sent()) * 4;
        EXPECT_GE(seconds_of(*slow, kCount), 0.003 + bytes / 4e6) << algorithm->name << ", " << n << " ranks";
      });
  }
}

TEST(EmulatedLink, WithoutABandwidthTakesTheDelaysAlone) {
  const int n = 2;
  KEEL_NEEDS_RANKS(n);
  on_ranks(n, [&](Communicator& ranks) {
    const auto slow = ranks.regroup({.link = Link{.delay = std::chrono::milliseconds(3), .bandwidth = 0}});
    EXPECT_GE(seconds_of(*slow, 12'000), 0.003);
  });
}

TEST(EmulatedLink, GivesTheSameResultsToGroupsThatAreSplitOff) {
  const Link link{.delay = std::chrono::microseconds(100), .bandwidth = 1e8};
  for (const int n : {2, 3, 4}) {
    KEEL_NEEDS_RANKS(n);
    on_ranks(n, [&](Communicator& ranks) {
      const auto slow = ranks.regroup({.link = link});
      const auto pairs = slow->split(ranks.rank() / 2, ranks.rank());
      seconds_of(*slow, 1000);
      seconds_of(*pairs, 10);
      seconds_of(ranks, 10);
    });
  }
}

TEST(EmulatedLink, TellsOfARankThatLeft) {
  const int n = 3;
  KEEL_NEEDS_RANKS(n);
  const auto said = messages(n, [&](Communicator& ranks) {
    const auto slow = ranks.regroup({.link = {.delay = std::chrono::milliseconds(1)}});
    seconds_of(*slow, 100);
    if (ranks.rank() == 1) throw Error("rank 1 has had enough");
    seconds_of(*slow, 100);
  });
  EXPECT_NE(said[0], "");
  EXPECT_NE(said[2], "");
}

}  // namespace
}  // namespace keel
