// How long a rank sleeps that waits for something in shared memory.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include "tests/dist/comm/tcp/tcp_ranks.h"

namespace keel {
namespace {

using namespace std::chrono_literals;

thread_local std::chrono::nanoseconds longest_sleep = 0ns;  // that this thread has asked for

}  // namespace
}  // namespace keel

// It stands before that of the system's library.
extern "C" int ppoll(pollfd* files, nfds_t count, const timespec* limit, const sigset_t* signals) {
  timespec left = *limit;
  keel::longest_sleep =
      std::max(keel::longest_sleep, std::chrono::seconds(left.tv_sec) + std::chrono::nanoseconds(left.tv_nsec));
  return static_cast<int>(::syscall(SYS_ppoll, files, count, &left, signals, std::size_t{8}));
}

namespace keel {
namespace {

// It gives its core to others first.
std::chrono::nanoseconds first_sleep(TcpTransport& transport, std::chrono::microseconds limit) {
  longest_sleep = 0ns;
  while (longest_sleep == 0ns) transport.idle(limit);
  return longest_sleep;
}

// No connection tells of it.
TEST(TcpIdle, SleepsForASmallPartOfItsWaitAndForItsLimitAtMost) {
  testing::on_transports(2, [](std::unique_ptr<TcpTransport> transport) {
    const auto began = std::chrono::steady_clock::now();
    ASSERT_TRUE(transport->share(4'096));
    EXPECT_FALSE(transport->idles_until_news());
    EXPECT_LE(first_sleep(*transport, 20us), 20us);
    const std::chrono::nanoseconds sleep = first_sleep(*transport, 1s);
    EXPECT_LE(sleep, std::max<std::chrono::nanoseconds>((std::chrono::steady_clock::now() - began) / 16, 50us));
  });
}

}  // namespace
}  // namespace keel
