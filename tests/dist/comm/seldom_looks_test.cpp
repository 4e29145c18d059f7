// Ranks that the machine seldom lets run hear what others do.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "keel/dist/comm/thread_transport.h"
#include "keel/dist/comm/transport_communicator.h"
#include "tests/dist/comm/forwarding_transport.h"
#include "tests/dist/comm/heard.h"

namespace keel {
namespace {

using namespace keel::testing;

// Each look at the others lasts, as on a machine that has other work to do.
class DozingTransport : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  void idle(std::chrono::microseconds limit) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    inner().idle(limit);
  }
};

TEST(SeldomLooks, HearTheReasonOfARankThatHasLeftHoweverSeldomOthersLook) {
  ThreadHub hub(3);
  std::vector<std::string> said(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const auto comm = make_communicator(std::make_unique<DozingTransport>(hub.connect(rank)));
        try {
          comm->barrier();
          if (rank == 2) throw Error("out of paper");
          comm->barrier();
        } catch (const Error& error) {
          comm->fail(concat("rank ", rank, " failed: ", error.what()));
          throw;
        }
      } catch (const Error& error) { said[static_cast<std::size_t>(rank)] = error.what(); }
    });
  for (std::thread& each : threads) each.join();
  for (const std::size_t rank : {0, 1}) EXPECT_TRUE(is_heard(said[rank], "rank 2 failed: out of paper")) << said[rank];
}

}  // namespace
}  // namespace keel
