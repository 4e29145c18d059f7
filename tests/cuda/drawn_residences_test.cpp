// Peaks of a device's memory, the processor's and files, against the plan, wherever numbers lie.

#include "tests/cuda/nccl_ranks.h"
#include "tests/dist/parallel/drawn_residences.h"

namespace keel {
namespace {

using namespace keel::testing;

using ResidencesOfDevice = NcclRanks;

TEST_F(ResidencesOfDevice, PeakAsThePlanSays) {
  KEEL_NEEDS_DEVICES(4);
  const char* const from = std::getenv("SEED_FROM");
  const char* const to = std::getenv("SEED_TO");
  for (std::uint64_t seed = from ? std::stoull(from) : 1; seed < (to ? std::stoull(to) : 60); ++seed) {
    const DrawnCase each = DrawnCase::draw(seed);
    try {
      on_devices(
          each.ranks, [&](const DeviceRank& own) { expect_tiers_as_planned(each, own.context, own.devices); },
          {.drain_seed = each.drain_seed});
    } catch (const std::exception& error) { ADD_FAILURE() << each.text() << ": " << error.what(); }
  }
}

}  // namespace
}  // namespace keel
