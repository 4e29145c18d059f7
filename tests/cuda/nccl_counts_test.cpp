// Collectives between devices whose parts differ in length.

#include "tests/cuda/nccl_ranks.h"

namespace keel {
namespace {

using namespace keel::testing;

class NcclCounts : public NcclRanks {};

// Rank r sends i + 1 numbers to rank i, and nothing to itself.
TEST_F(NcclCounts, MovePartsOfAnyLengthsByAllToAllV) {
  for (int n = 1; n <= most(); ++n)
    on_devices(n,
               [&](const DeviceRank& own) {
                 std::vector<std::int64_t> sends, receives;
                 std::vector<double> in, expected;
                 for (int i = 0; i < n; ++i) {
                   sends.push_back(i == own.rank() ? 0 : i + 1);
                   receives.push_back(i == own.rank() ? 0 : own.rank() + 1);
                   in.insert(in.end(), static_cast<std::size_t>(sends.back()), 10 * own.rank() + i);
                   expected.insert(expected.end(), static_cast<std::size_t>(receives.back()), 10 * i + own.rank());
                 }
                 for (const DType dtype : kAllTypes) {
                   const Tensor given = tensor_of(own.context, in, {static_cast<std::int64_t>(in.size())}, dtype);
                   const Tensor out = zeros(own.context, {static_cast<std::int64_t>(expected.size())}, dtype);
                   const Traffic before = own.devices.traffic();
                   own.devices.all_to_all_v(given, out, sends, receives).wait();
                   EXPECT_EQ(doubles(out), expected);
                   EXPECT_EQ(own.devices.traffic().sent() - before.sent(), static_cast<std::int64_t>(given.bytes()));
                 }
               },
               {.nccl = {.check_every = 1}});
}

}  // namespace
}  // namespace keel
