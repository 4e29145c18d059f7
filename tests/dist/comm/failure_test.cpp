// What ranks are told when one of them fails, leaves or does not come, over any transport.

#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <thread>

#include "keel/dist/comm/communicator.h"
#include "tests/dist/comm/heard.h"
#include "tests/dist/comm/ranks.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

TEST(Failure, OfOneRankReachesAllWithItsReasonAndWhatTheyWereAbout) {
  KEEL_NEEDS_RANKS(4);
  const auto told = messages(4, [](Communicator& comm) {
    const Tensor x = zeros(testing::context(1), {1'000});
    comm.set_activity("step 57");
    comm.all_reduce(x).wait();
    if (comm.rank() == 1) throw Error("the disk is full");
    comm.all_reduce(x).wait();
  });
  EXPECT_EQ(told[1], "the disk is full");
  for (const std::size_t r : {0, 2, 3})
    EXPECT_EQ(told[r], concat("rank 1 failed: the disk is full; rank ", r,
                              " was in all_reduce of 1000 f32 (sum) (collective number 1, step 57)"));
}

TEST(Failure, ReachesTheGroupsThatWereSplitOff) {
  KEEL_NEEDS_RANKS(4);
  const auto told = messages(4, [](Communicator& comm) {
    const auto pair = comm.split(comm.rank() / 2, 0);
    if (comm.rank() == 0) throw Error("out of paper");
    pair->barrier();
    comm.barrier();
  });
  for (const std::size_t r : {1, 2, 3}) EXPECT_TRUE(is_heard(told[r], "rank 0 failed: out of paper"));
}

TEST(Failure, OfARankThatLeftIsNamed) {
  KEEL_NEEDS_RANKS(3);
  const auto told = messages(3, [](Communicator& comm) {
    if (comm.rank() != 1) comm.barrier();
  });
  EXPECT_EQ(told[1], "");
  for (const std::size_t r : {0, 2}) EXPECT_NE(told[r].find("rank 1 has left"), std::string::npos) << told[r];
}

// The wait goes on, and ends well.
TEST(Failure, ARankThatIsToEndSaysWhatItWaitsFor) {
  KEEL_NEEDS_RANKS(3);
  std::mutex mutex;
  std::string lines;
  const auto told = messages(3,
                             [&](Communicator& comm) {
                               const auto pair = comm.split(comm.rank() == 0 ? 0 : 1, 0);
                               pair->set_activity("step 57");
                               if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(900));
                               pair->all_reduce(zeros(testing::context(1), {8})).wait();
                               const std::lock_guard lock(mutex);
                               if (comm.rank() == 2) throw Error(MessageLines{lines});
                             },
                             {.is_worried = [] { return true; },
                              .tell =
                                  [&](int rank, const std::string& line) {
                                    const std::lock_guard lock(mutex);
                                    lines += concat(rank, ": ", line, '\n');
                                  }});
  EXPECT_EQ(told[0], "");
  EXPECT_EQ(told[1], "");
  EXPECT_EQ(told[2],
            "2: rank 2 waits in all_reduce of 8 f32 (sum) (collective number 0, step 57): nothing has come from rank "
            "1\n");
}

// Acceptance check 30, its second half.
TEST(Failure, OfRanksThatDoNotComeNamesThemAndTheCollective) {
  KEEL_NEEDS_RANKS(4);
  for (const std::set<int>& late : {std::set{1}, std::set{0, 2}}) {
    const auto told = messages(4,
                               [&](Communicator& comm) {
                                 comm.set_activity("step 57");
                                 comm.barrier();
                                 if (late.contains(comm.rank()))
                                   std::this_thread::sleep_for(std::chrono::milliseconds(800));
                                 comm.all_reduce(zeros(testing::context(1), {8})).wait();
                               },
                               {.timeout = std::chrono::milliseconds(300)});
    for (int r = 0; r < 4; ++r) {
      const std::string& text = told[static_cast<std::size_t>(r)];
      EXPECT_NE(text, "");
      if (late.contains(r)) continue;  // the first to give up tells the others
      const std::string expected = concat(
          "gave up after 300 ms in all_reduce of 8 f32 (sum) (collective number 1, step "
          "57): nothing came from ",
          late.size() == 1 ? "rank 1" : "ranks 0, 2");
      EXPECT_NE(text.find(expected), std::string::npos) << text;
    }
  }
}

TEST(Failure, OfACommunicatorThatGoesIsToldToWhoStillWaits) {
  KEEL_NEEDS_RANKS(2);
  on_ranks(2, [](Communicator& comm) {
    Work work;
    {
      const auto pair = comm.split(0, 0);
      if (comm.rank() == 0) work = pair->all_reduce(zeros(testing::context(1), {4}));
      comm.barrier();
    }
    if (comm.rank() == 0) { EXPECT_THROW(work.wait(), Error); }
    comm.barrier();
  });
}

}  // namespace
}  // namespace keel
