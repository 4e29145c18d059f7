#include "keel/dist/comm/run_ranks.h"

#include <gtest/gtest.h>

#include "keel/dist/comm/agreement.h"
#include "keel/dist/comm/thread_transport.h"
#include "keel/runtime/error.h"
#include "tests/error_of.h"

namespace keel {
namespace {

TEST(RunRanks, RethrowsTheFailureThatCausedTheOthers) {
  try {
    run_ranks(3, [](Communicator& comm) {
      if (comm.rank() == 2) throw Error("bad weather");
      comm.barrier();
    });
    FAIL();
  } catch (const Error& error) { EXPECT_STREQ(error.what(), "bad weather"); }
}

// It is one of all ranks, also where a rank fails by itself afterwards.
TEST(RunRanks, RethrowsTheFailureThatAllHaveAgreedOn) {
  for (const bool shared : {true, false})
    EXPECT_EQ(testing::error_of([&] {
                run_ranks(2,
                          [](Communicator& comm) {
                            if (comm.rank() == 0) throw AgreedError("ranks differ in the weather");
                            EXPECT_NE(testing::error_of([&] { comm.barrier(); }), "") << "rank 0 has gone";
                            throw Error("bad weather");
                          },
                          {.shared_memory = shared});
              }),
              "ranks differ in the weather");
}

TEST(ThreadHub, HasThePlacesOfItsRanksAlone) {
  const ThreadHub hub(2);
  for (const int rank : {-1, 2, 3})
    EXPECT_EQ(testing::error_of([&] { hub.connect(rank); }), concat("there is no rank ", rank, " of 2"));
}

}  // namespace
}  // namespace keel
