// How long a rank sleeps that waits for something in shared memory.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include "keel/dist/comm/tcp_program.h"
#include "tests/dist/comm/tcp/tcp_ranks.h"

namespace keel {
namespace {

using namespace std::chrono_literals;

thread_local std::chrono::nanoseconds longest_sleep = 0ns;  // that this thread has asked for
thread_local int sleeps = 0;

}  // namespace
}  // namespace keel

// It stands before that of the system's library.
extern "C" int ppoll(pollfd* files, nfds_t count, const timespec* limit, const sigset_t* signals) {
  timespec left = *limit;
  ++keel::sleeps;
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

// Rank 0 sleeps for as long as it is told unless something comes; and goes at once where rank 1 has said goodbye.
TEST(TcpIdle, OfAProgramLastsUntilSomethingComes) {
  EXPECT_EQ(testing::messages(testing::tcp_options(2),
                              [](const TcpOptions& options) {
                                auto program = std::make_unique<TcpProgram>(options.rank, meet(options));
                                const char word = 'x';
                                if (options.rank == 1) {
                                  program->send(0, 7, 1, &word, 1);
                                  return;
                                }
                                char heard = 0;
                                const auto incoming = program->receive(1, 7, 1, &heard, 1);
                                longest_sleep = 0ns;
                                while (!incoming->is_finished()) program->idle(1'500ms);
                                EXPECT_EQ(longest_sleep, 1'500ms);
                                while (!program->departure(7, 1)) program->idle(1ms);
                                sleeps = 0;
                                program.reset();
                                EXPECT_EQ(sleeps, 0);
                              }),
            std::vector<std::string>(2));
}

}  // namespace
}  // namespace keel
