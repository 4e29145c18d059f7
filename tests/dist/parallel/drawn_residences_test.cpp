// Peaks of a processor's memory and of files against the plan, wherever numbers lie.

#include "tests/dist/parallel/drawn_residences.h"
#include "tests/by_commit.h"

namespace keel {
namespace {

using namespace keel::testing;

TEST(DrawnResidences, OfAProcessorHaveThePeaksOfThePlan) {
  for (const std::uint64_t seed : std::array<std::uint64_t, 5>{1, 2, 3, 4, by_commit()()})
    for (const int number : {0, 1, 2, 3})
      for (const int n : {1, 2, 3, 4}) {
        const DrawnCase each = DrawnCase::draw(seed, number, n);
        SCOPED_TRACE(each.text());
        run_ranks(n, [&](Communicator& ranks) { expect_tiers_as_planned(each, testing::context(1), ranks); });
      }
}

}  // namespace
}  // namespace keel
