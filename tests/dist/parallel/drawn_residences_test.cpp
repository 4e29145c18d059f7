// Peaks of a processor's memory and of files against the plan, wherever numbers lie.

#include "tests/dist/parallel/drawn_residences.h"

namespace keel {
namespace {

using namespace keel::testing;

TEST(ResidencesOfProcessor, PeakAsThePlanSays) {
  const char* const from = std::getenv("SEED_FROM");
  const char* const to = std::getenv("SEED_TO");
  for (std::uint64_t seed = from ? std::stoull(from) : 1; seed < (to ? std::stoull(to) : 60); ++seed) {
    const DrawnCase each = DrawnCase::draw(seed);
    try {
      run_ranks(each.ranks, [&](Communicator& ranks) { expect_tiers_as_planned(each, testing::context(1), ranks); });
    } catch (const std::exception& error) { ADD_FAILURE() << each.text() << ": " << error.what(); }
  }
}

}  // namespace
}  // namespace keel
