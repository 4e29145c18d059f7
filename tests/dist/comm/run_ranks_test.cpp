#include "keel/dist/comm/run_ranks.h"

#include <gtest/gtest.h>

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

TEST(ThreadHub, HasThePlacesOfItsRanksAlone) {
  const ThreadHub hub(2);
  for (const int rank : {-1, 2, 3})
    EXPECT_EQ(testing::error_of([&] { hub.connect(rank); }), concat("there is no rank ", rank, " of 2"));
}

}  // namespace
}  // namespace keel
