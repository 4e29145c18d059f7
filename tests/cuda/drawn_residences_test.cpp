// Peaks of a device's memory, the processor's beside it, and files, against the plan, wherever numbers lie.

#include "tests/dist/parallel/drawn_residences.h"
#include "tests/cuda/nccl_ranks.h"

namespace keel {
namespace {

using namespace keel::testing;

using DrawnResidencesOnDevice = NcclRanks;

TEST_F(DrawnResidencesOnDevice, HaveThePeaksOfThePlanAloneAndTogether) {
  KEEL_NEEDS_DEVICES(4);
  for (const std::uint64_t seed : {1, 2})
    for (const int number : {0, 1, 2, 3})
      for (const int n : {1, 2, 3, 4}) {
        const DrawnCase each = DrawnCase::draw(seed, number, n);
        SCOPED_TRACE(each.text());
        on_devices(n, [&](const DeviceRank& own) { expect_tiers_as_planned(each, own.context, own.devices); },
                   {.drain_seed = seed});
      }
}

}  // namespace
}  // namespace keel
