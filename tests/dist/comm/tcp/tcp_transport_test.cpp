// Which frames go together, and what is said of peers that are none or have left.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/collective_schedule.h"
#include "tests/dist/comm/messages.h"
#include "tests/dist/comm/ranks.h"
#include "tests/dist/comm/tcp/system_calls.h"
#include "tests/dist/comm/tcp/tcp_ranks.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

// The first messages of a small collective go with the signatures, also where the schedule begins with a copy.
TEST(TcpTransport, SendsTheFirstMessagesOfASmallCollectiveWithItsSignaturesByEveryAlgorithm) {
  for (const Algorithm* const algorithm : algorithms())
    for (const int n : {2, 3, 4})
      on_ranks(
          n,
          [&](Communicator& comm) {
            const Context context = testing::context(1);
            const Tensor x = zeros(context, {std::int64_t{16} * n}), mine = zeros(context, {16});
            const std::pair<Collective, std::function<Work()>> asked[] = {
                {{.kind = CollectiveKind::all_gather, .input = mine, .output = x},
                 [&] { return comm.all_gather(mine, x); }},
                {{.kind = CollectiveKind::reduce_scatter, .input = x, .output = mine},
                 [&] { return comm.reduce_scatter(x, mine); }},
                {{.kind = CollectiveKind::all_reduce, .input = x, .output = x}, [&] { return comm.all_reduce(x); }},
                {{.kind = CollectiveKind::broadcast, .input = x, .output = x, .peer = 0},
                 [&] { return comm.broadcast(x, 0); }}};
            for (const auto& [collective, ask] : asked) {
              // Its rank 0 sends two at once to each, which may go together.
              if (algorithm->name == "flat" && collective.kind == CollectiveKind::all_gather) continue;
              const Schedule schedule = schedule_of(*algorithm, collective, comm.rank(), comm.nodes());
              std::size_t messages = 0, first = 0;
              bool has_begun = false;
              for (const Step& step : schedule.steps) {
                messages += step.sends.size();
                if (!std::exchange(has_begun, has_begun || !step.sends.empty() || !step.receives.empty()))
                  first = step.sends.size();
              }
              comm.barrier();
              const std::int64_t before = sendmsg_calls;
              ask().wait();
              EXPECT_EQ(sendmsg_calls - before, n - 1 + static_cast<std::int64_t>(messages - first))
                  << algorithm->name << ' ' << collective << " on rank " << comm.rank() << " of " << n;
            }
          },
          {.algorithm = std::string(algorithm->name), .shared_memory = false});
}

TEST(TcpTransport, HasNoMessagesButBetweenTwoOfItsRanks) {
  on_transports(2, [](std::unique_ptr<TcpTransport> transport) {
    EXPECT_TRUE(transport->idles_until_news());
    const int own = transport->rank();
    for (const int peer : {-1, 2, own}) {
      EXPECT_EQ(error_of([&] { transport->send(peer, 0, nullptr, 0); }),
                concat("rank ", own, " of 2 has no message to rank ", peer));
      EXPECT_EQ(error_of([&] { transport->receive(peer, 0, nullptr, 0); }),
                concat("rank ", own, " of 2 has no message from rank ", peer));
    }
    pass_on(*transport, 1, 10);
  });
}

// More than the system takes, and rank 1 does not read.
TEST(TcpTransport, NamesARankThatHasLeftToOneThatSends) {
  std::atomic<bool> has_heard = false;
  const auto told = messages(tcp_options(2), [&](const TcpOptions& options) {
    auto both = make_tcp_transports(options, 2);
    EXPECT_EQ(both.size(), 2u);
    if (options.rank == 1) {
      both[0].reset();
      while (!has_heard) std::this_thread::yield();
      return;
    }
    const Bytes sent(40'000'000);
    const auto message = both[0]->send(1, 1, sent.data(), sent.size());
    EXPECT_EQ(error_of([&] { finish(*both[0], *message); }), "rank 1 has left while rank 0 waits for it");
    has_heard = true;
  });
  EXPECT_EQ(told, std::vector<std::string>(2));
}

}  // namespace
}  // namespace keel
