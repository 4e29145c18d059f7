// Ranks wait for collectives of several groups in different orders: each wait goes on with all of them.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "keel/dist/comm/communicator.h"
#include "tests/dist/comm/ranks.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

// Small and large ones go different ways.
constexpr std::int64_t kCounts[] = {3, 20'000, 300'000};

struct Asked {
  Tensor x;
  double expected;
  Work work;
};

Asked ask(Communicator& comm, std::int64_t count, double value) {
  const Tensor x = tensor_of(testing::context(1),
                             std::vector<double>(static_cast<std::size_t>(count), value * (comm.rank() + 1)), {count});
  return {x, value * comm.size() * (comm.size() + 1) / 2, comm.all_reduce(x)};
}

void wait_in_order(std::vector<Asked>& asked, bool backwards) {
  if (backwards) std::reverse(asked.begin(), asked.end());
  for (const Asked& one : asked) {
    one.work.wait();
    const std::vector<double> values = doubles(one.x);
    EXPECT_TRUE(std::all_of(values.begin(), values.end(), [&](double v) { return v == one.expected; }));
  }
}

const CommunicatorOptions kSoon = {.timeout = std::chrono::seconds(10)};

TEST(Progress, OfTwoGroupsOfAllRanksNeedsNoCommonOrderOfWaiting) {
  for (const int n : {2, 3, 4}) {
    on_ranks(
        n,
        [](Communicator& comm) {
          const auto parameters = comm.split(0, 0), control = comm.split(0, -comm.rank());
          for (const std::int64_t count : kCounts) {
            for (int odd = 0; odd < 2; ++odd) {
              std::vector<Asked> asked;
              asked.push_back(ask(*parameters, count, 1));
              asked.push_back(ask(*control, count, 2));
              asked.push_back(ask(comm, count, 3));
              wait_in_order(asked, comm.rank() % 2 == odd);
            }
          }
        },
        kSoon);
  }
}

// Rows and columns of a mesh, as for sharding in nodes and replicas across them.
TEST(Progress, OfRowsAndColumnsNeedsNoCommonOrderOfWaiting) {
  for (const int n : {2, 3, 4}) {
    on_ranks(
        n,
        [](Communicator& comm) {
          const auto row = comm.split(comm.rank() / 2, comm.rank()), column = comm.split(comm.rank() % 2, comm.rank());
          for (const std::int64_t count : kCounts) {
            std::vector<Asked> asked;
            for (int i = 0; i < 3; ++i) {
              asked.push_back(ask(*row, count, i));
              asked.push_back(ask(*column, count + 1, i));
            }
            std::mt19937 engine(static_cast<unsigned>(comm.rank()));
            std::shuffle(asked.begin(), asked.end(), engine);
            wait_in_order(asked, false);
          }
        },
        kSoon);
  }
}

// A rank that waits in one group must serve another rank that has not even asked there.
TEST(Progress, ServesAGroupWhileTheRankBlocksInAnother) {
  KEEL_NEEDS_RANKS(2);
  on_ranks(
      2,
      [](Communicator& comm) {
        const auto other = comm.split(0, 0);
        Asked asked = ask(*other, 300'000, 1);
        if (comm.rank() == 1) asked.work.wait();
        comm.barrier();
        asked.work.wait();
        EXPECT_EQ(doubles(asked.x)[299'999], 3);
      },
      kSoon);
}

TEST(Progress, HearsOfAFailureInAnotherGroup) {
  KEEL_NEEDS_RANKS(3);
  const auto told = messages(
      3,
      [](Communicator& comm) {
        const auto other = comm.split(0, 0);
        const Tensor x = zeros(testing::context(1), {8});
        const Work work = other->all_reduce(x.slice(0, 0, comm.rank() == 1 ? 7 : 8));
        if (comm.rank() != 2) comm.barrier();
        work.wait();
      },
      kSoon);
  for (const std::string& text : told)
    EXPECT_NE(text.find("rank 1 for all_reduce of 7 f32"), std::string::npos) << text;
}

}  // namespace
}  // namespace keel
