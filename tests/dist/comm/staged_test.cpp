// Collectives through the memory of processors, where tensors lie there already; tests/cuda has those of devices.

#include "keel/dist/comm/staged_communicator.h"

#include <gtest/gtest.h>

#include "tests/dist/comm/ranks.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

TEST(StagedCommunicator, PassesOnWhatIsOfTheProcessor) {
  KEEL_NEEDS_RANKS(3);
  const auto numbers = results(3, [](Communicator& direct) {
    const std::unique_ptr<Communicator> comm = make_staged_communicator(direct.split(0, direct.rank()));
    EXPECT_EQ(comm->rank(), direct.rank());
    EXPECT_EQ(comm->size(), 3);
    EXPECT_EQ(comm->nodes(), direct.nodes());
    comm->poll();
    const Context context = testing::context(1);
    const Tensor x = tensor_of(context, {1.0 + comm->rank(), 2}, {2}), all = zeros(context, {3});
    const Work sum = comm->all_reduce(x);
    comm->poll();
    sum.wait();
    EXPECT_TRUE(sum.has_finished());
    comm->all_gather(tensor_of(context, {10.0 * comm->rank()}, {1}), all).wait();
    const std::unique_ptr<Communicator> half = comm->split(comm->rank() % 2, 0);
    EXPECT_EQ(half->size(), comm->rank() % 2 == 0 ? 2 : 1);
    half->barrier();
    std::vector<double> mine = doubles(x);
    for (const double each : doubles(all)) mine.push_back(each);
    return mine;
  });
  for (const std::vector<double>& each : numbers) EXPECT_EQ(each, (std::vector<double>{6, 6, 0, 10, 20}));
}

}  // namespace
}  // namespace keel
