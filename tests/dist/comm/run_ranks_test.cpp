#include "keel/dist/comm/run_ranks.h"

#include <gtest/gtest.h>

#include "keel/runtime/error.h"

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

}  // namespace
}  // namespace keel
