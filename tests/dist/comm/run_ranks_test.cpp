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

// The reason of one that an exception ends may yet come.
TEST(ThreadHub, MissesARankThatHasLeftInOrderAtOnce) {
  for (const bool in_order : {true, false}) {
    const ThreadHub hub(2);
    const std::unique_ptr<Transport> stays = hub.connect(0);
    int number = 0;
    const std::unique_ptr<Message> message = stays->receive(1, 0, &number, sizeof(number));
    EXPECT_FALSE(message->has_finished());
    try {
      const std::unique_ptr<Transport> goes = hub.connect(1);
      if (!in_order) throw Error("bad weather");
    } catch (const Error&) {}
    EXPECT_EQ(testing::error_of([&] { EXPECT_FALSE(message->has_finished()); }),
              in_order ? "rank 1 has left while rank 0 waits for it" : "");
  }
}

TEST(ThreadHub, HasThePlacesOfItsRanksAlone) {
  const ThreadHub hub(2);
  for (const int rank : {-1, 2, 3})
    EXPECT_EQ(testing::error_of([&] { hub.connect(rank); }), concat("there is no rank ", rank, " of 2"));
  for (const int size : {0, -1})
    EXPECT_EQ(testing::error_of([&] { ThreadHub none(size); }),
              concat("a group of ranks needs one at least, got ", size));
}

}  // namespace
}  // namespace keel
