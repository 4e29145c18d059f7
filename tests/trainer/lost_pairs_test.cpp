// Runs of groups of two ranks of which one dies, wherever it does: the others come to the end.

#include <gtest/gtest.h>

#include "tests/trainer/lost_groups.h"

namespace keel {
namespace {

using namespace testing;

TEST(LostPairs, AreDroppedWhereverARankDies) {
  const std::vector<std::string> settings = dropping("{type: diloco, every: 3}", 2, {"strategy=zero3-fp32"});
  for (const int victim : {5, 0}) {
    const TemporaryFolder place;
    const std::int64_t asked = train_until_death(6, small_run(place, "whole", settings), {victim, -1})
                                   .ranks[static_cast<std::size_t>(victim)]
                                   ->asked;
    constexpr std::int64_t kTries = 7;
    for (std::int64_t i = 0; i < kTries; ++i) {
      const std::int64_t at = i * (asked - 8) / (kTries - 1);
      const std::string what = concat("rank ", victim, " before collective ", at, " of ", asked);
      const Config config = small_run(place, concat("run-", i), settings);
      const Ended ended = train_until_death(6, config, {victim, at});
      std::set<int> left = {0, 1, 2, 3, 4, 5};
      left.erase(victim);
      left.erase(victim ^ 1);
      EXPECT_EQ(ended.left(), left) << what << ": " << ended.errors[2];
      if (ended.left() == left) expect_whole_run(config, ended, victim / 2, what);
    }
  }
}

}  // namespace
}  // namespace keel
