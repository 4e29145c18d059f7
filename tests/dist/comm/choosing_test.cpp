// Communicators that go over to another algorithm.

#include "keel/dist/comm/choosing_communicator.h"

#include <gtest/gtest.h>

#include "keel/dist/comm/run_ranks.h"
#include "keel/kernels/elementwise.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

std::vector<std::string> ways_from(Communicator& ranks, std::string_view first) {
  const auto choosing = make_choosing_communicator(ranks, first);
  return {choosing->ways().begin(), choosing->ways().end()};
}

TEST(ChoosingCommunicator, HasEachWayThatAddsByRankInOneSumOnce) {
  run_ranks(2, [](Communicator& ranks) {
    EXPECT_EQ(ways_from(ranks, "ordered"), (std::vector<std::string>{"ordered", "direct", "flat"}));
    EXPECT_EQ(ways_from(ranks, "flat"), (std::vector<std::string>{"flat", "ordered", "direct"}));
    for (const char* other : {"ring", "tree", "rhd", "hier", "backend"})
      EXPECT_EQ(error_of([&] { ways_from(ranks, other); }),
                concat("the sums of ", other, " are not those of other algorithms"));
  });
}

TEST(ChoosingCommunicator, CountsWhatAllItsWaysHaveDone) {
  run_ranks(3,
            [](Communicator& ranks) {
              const auto choosing = make_choosing_communicator(ranks, "direct");
              const std::size_t ways = choosing->ways().size();
              ASSERT_GE(ways, 2u);
              Traffic expected;
              for (std::size_t way = 0; way < ways; ++way) {
                choosing->use_way(way);
                const auto alone = make_choosing_communicator(ranks, choosing->ways()[way]);
                for (std::size_t i = 0; i < way + 2; ++i)
                  for (const auto* one : {&choosing, &alone}) {
                    const Tensor x = kernels::full(testing::context(1), {30}, ranks.rank() + 1);
                    (*one)->all_reduce(x).wait();
                    EXPECT_EQ(doubles(x), std::vector<double>(30, 6));
                  }
                expected.add(alone->traffic());
              }
              const Traffic traffic = choosing->traffic();
              EXPECT_EQ(traffic.collectives, static_cast<std::int64_t>(ways * (ways + 3) / 2));
              EXPECT_EQ(traffic.collectives, expected.collectives);
              EXPECT_EQ(traffic.inside_node, expected.inside_node);
              EXPECT_EQ(traffic.between_nodes, expected.between_nodes);
              EXPECT_EQ(traffic.control, expected.control);
              EXPECT_EQ(traffic.inside_node > 0, ranks.rank() < 2) << "rank 2 is alone on its node";
              EXPECT_GT(traffic.between_nodes, 0);
            },
            {.nodes = {0, 0, 1}});
}

TEST(ChoosingCommunicator, HasNoOtherWays) {
  run_ranks(1, [](Communicator& ranks) {
    const auto choosing = make_choosing_communicator(ranks, "direct");
    const std::size_t ways = choosing->ways().size();
    EXPECT_EQ(error_of([&] { choosing->use_way(ways); }),
              concat("there are ", ways, " ways of collectives, and no number ", ways));
    choosing->use_way(ways - 1);
    EXPECT_NE(error_of([] { make_choosing_communicator(std::vector<CommunicatorWay>()); }), "");
  });
}

}  // namespace
}  // namespace keel
