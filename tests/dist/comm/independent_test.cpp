// Communicators of one rank that nothing joins but advance_together().

#include <gtest/gtest.h>

#include <thread>

#include "keel/dist/comm/decorators.h"
#include "keel/dist/comm/thread_transport.h"
#include "keel/dist/comm/transport_communicator.h"
#include "keel/kernels/elementwise.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

TEST(IndependentCommunicators, OfOtherKindsDoNotAdvanceTogether) {
  const ThreadHub hub(1);
  const auto made = make_communicator(hub.connect(0));
  CommunicatorDecorator other(*made);
  const std::string text = "only communicators made of messages can advance together";
  EXPECT_EQ(error_of([&] { advance_together(*made, other); }), text);
  EXPECT_EQ(error_of([&] { advance_together(other, *made); }), text);
  EXPECT_EQ(error_of([&] { advance_together(other, other); }), text);
}

TEST(IndependentCommunicators, AdvanceTogetherWhereTheyAreAskedTo) {
  for (const int n : {2, 3, 4}) {
    const ThreadHub hubs[] = {ThreadHub(n), ThreadHub(n)};
    const auto run = [&](int rank) {
      const CommunicatorOptions options = {.timeout = std::chrono::seconds(10)};
      const auto one = make_communicator(hubs[0].connect(rank), options);
      const auto two = make_communicator(hubs[1].connect(rank), options);
      advance_together(*one, *two);
      const auto pair = two->split(0, 0);
      for (const std::int64_t count : {3, 100'000}) {
        const Tensor x = kernels::full(context(1), {count}, 1), y = kernels::full(context(1), {count}, 2),
                     z = kernels::full(context(1), {count}, 3);
        const Work first = one->all_reduce(x), second = two->all_reduce(y), third = pair->all_reduce(z);
        if (rank % 2 == 0) first.wait(), second.wait(), third.wait();
        else third.wait(), second.wait(), first.wait();
        EXPECT_EQ(doubles(x).back(), n);
        EXPECT_EQ(doubles(y).back(), 2 * n);
        EXPECT_EQ(doubles(z).back(), 3 * n);
      }
    };
    std::vector<std::jthread> ranks;
    for (int r = 0; r < n; ++r) ranks.emplace_back([&, r] { EXPECT_NO_THROW(run(r)); });
  }
}

}  // namespace
}  // namespace keel
