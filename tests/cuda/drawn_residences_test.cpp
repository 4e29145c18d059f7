// Peaks of a device's memory, the processor's beside it, and files, against the plan, wherever numbers lie.

#include "tests/dist/parallel/drawn_residences.h"
#include "tests/cuda/nccl_ranks.h"

#include "keel/dist/comm/staged_communicator.h"

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

TEST_F(DrawnResidencesOnDevice, HaveThePeaksOfThePlanWhereCollectivesGoThroughTheProcessor) {
  KEEL_NEEDS_DEVICES(3);
  for (const int number : {0, 1, 2, 3}) {
    const DrawnCase each = DrawnCase::draw(3, number, 3);
    SCOPED_TRACE(each.text());
    on_devices(3, [&](const DeviceRank& own) {
      const auto staged = make_staged_communicator(own.hosts.split(0, own.rank()));
      expect_tiers_as_planned(each, own.context, *staged);
    });
  }
}

}  // namespace
}  // namespace keel
