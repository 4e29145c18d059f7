// What every build says of collectives between GPUs, with NCCL or without.

#include "keel/dist/comm/nccl_communicator.h"

#include <gtest/gtest.h>

#include "keel/dist/comm/run_ranks.h"
#include "tests/support.h"

namespace keel {
namespace {

TEST(Nccl, DoesNotServeTheProcessor) {
  run_ranks(1, [](Communicator& comm) {
    try {
      make_nccl_communicator(testing::context(1), comm.split(0, 0));
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsupported);
      EXPECT_NE(std::string(error.what()).find(why_no_nccl().empty() ? "processor" : why_no_nccl()), std::string::npos);
    }
  });
}

}  // namespace
}  // namespace keel
