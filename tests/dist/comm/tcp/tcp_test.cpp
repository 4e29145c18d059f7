// What only ranks that TCP connects have: messages given up, calls that fail, connections that end.

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <thread>

#include "keel/dist/comm/tcp_meeting.h"
#include "keel/runtime/error.h"
#include "tests/dist/comm/messages.h"
#include "tests/dist/comm/ranks.h"
#include "tests/dist/comm/tcp/system_calls.h"
#include "tests/dist/comm/tcp/tcp_ranks.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace keel::testing;
using namespace std::chrono_literals;

TEST(TcpTransport, PassesMessagesOfAllSizes) {
  for (const int n : {2, 3, 4}) {
    on_transports(n, [](std::unique_ptr<TcpTransport> transport) {
      for (const std::size_t bytes : {0, 1, 31, 32, 33, 16'383, 16'384, 65'503, 65'504, 65'536, 5'000'001})
        pass_on(*transport, bytes == 1 ? ~std::uint64_t{0} : 7, bytes);
    });
  }
}

TEST(TcpTransport, SendsAtOnceWhatIsHeldTogether) {
  on_transports(2, [](std::unique_ptr<TcpTransport> transport) {
    const int other = 1 - transport->rank();
    constexpr std::size_t kMessages = 5;
    std::vector<Bytes> in(kMessages, Bytes(100));
    const Bytes out = numbered(100);
    std::vector<std::unique_ptr<Message>> messages;
    const std::int64_t before = sendmsg_calls;
    {
      const HeldSends held(*transport);
      {
        const HeldSends also_held(*transport);
        for (std::size_t i = 0; i < kMessages; ++i)
          messages.push_back(transport->send(other, i, out.data(), out.size()));
      }
      EXPECT_EQ(sendmsg_calls, before);
    }
    EXPECT_EQ(sendmsg_calls, before + 1);
    for (std::size_t i = 0; i < kMessages; ++i)
      messages.push_back(transport->receive(other, i, in[i].data(), in[i].size()));
    for (const auto& message : messages) finish(*transport, *message);
    for (const Bytes& each : in) EXPECT_TRUE(each == out);
    EXPECT_EQ(sendmsg_calls, before + 1) << "waiting sends nothing";
  });
}

TEST(TcpTransport, TriesAgainWhereTheSystemHasNothingOrNoRoomForNow) {
  on_transports(2, [](std::unique_ptr<TcpTransport> transport) {
    for (const int error : {EAGAIN, EINTR, ENOBUFS}) {
      errors_of_sends.assign(3, error);
      errors_of_receives.assign(3, error);
      pass_on(*transport, 1, 100'000);
      EXPECT_EQ(errors_of_sends.size() + errors_of_receives.size(), 0u);
    }
  });
}

// What the other rank has said is still read, and tells more.
TEST(TcpTransport, ReadsOnWhereItCanSendNoMore) {
  const auto told = messages(tcp_options(2), [](const TcpOptions& options) {
    const auto transport = make_tcp_transport(options);
    Bytes data = numbered(100'000);
    if (options.rank == 1) {
      finish(*transport, *transport->send(0, 1, data.data(), data.size()));
      transport->fail("out of paper");
      return;
    }
    errors_of_sends.assign(1, EPIPE);
    const auto lost = transport->send(1, 2, data.data(), data.size());
    finish(*transport, *transport->receive(1, 1, data.data(), data.size()));
    EXPECT_TRUE(data == numbered(100'000));
    EXPECT_EQ(error_of([&] { finish(*transport, *lost); }), "out of paper");
  });
  EXPECT_EQ(told, std::vector<std::string>(2));
}

TEST(TcpTransport, TakesARankForGoneWhereItCannotBeHeard) {
  const auto said = [](TcpTransport& transport) {
    return error_of([&] {
      for (;;) {
        transport.check();
        transport.idle(1ms);
      }
    });
  };
  const auto told = messages(tcp_options(2), [&](const TcpOptions& options) {
    const auto transport = make_tcp_transport(options);
    if (options.rank == 0) errors_of_receives.assign(1, ECONNRESET);
    const auto send = transport->send(1 - options.rank, 1, "", 1);
    EXPECT_EQ(said(*transport), options.rank == 0 ? "rank 1 is gone" : "rank 0 is gone");
  });
  EXPECT_EQ(told, std::vector<std::string>(2));
}

// A small collective: its signature travels with what the first step sends.
TEST(TcpTransport, SendsTwiceToEachRankForASmallAllReduceAndOnceForAGather) {
  for (const int n : {2, 3, 4}) {
    on_ranks(n,
             [&](Communicator& comm) {
               const Context context = testing::context(1);
               const Tensor x = zeros(context, {n * std::int64_t{16}}), mine = zeros(context, {16});
               comm.barrier();
               const auto sends = [&](const std::function<Work()>& ask) {
                 const std::int64_t before = sendmsg_calls;
                 for (int i = 0; i < 10; ++i) ask().wait();
                 return sendmsg_calls - before;
               };
               EXPECT_EQ(sends([&] { return comm.all_reduce(x); }), 10 * 2 * (n - 1)) << n;
               EXPECT_EQ(sends([&] { return comm.all_gather(mine, x); }), 10 * (n - 1)) << n;
               EXPECT_EQ(sends([&] { return comm.reduce_scatter(x, mine); }), 10 * (n - 1)) << n;
             },
             {.shared_memory = false});
  }
}

TEST(TcpTransport, KeepsTheOrderOfAChannelAndNoOther) {
  on_transports(2, [](std::unique_ptr<TcpTransport> transport) {
    constexpr std::size_t kMessages = 60;
    const auto length = [](std::size_t i) { return i * i * 37; };
    std::vector<Bytes> data;
    std::vector<std::unique_ptr<Message>> messages;
    const bool sends = transport->rank() == 0;
    for (std::size_t i = 0; i < kMessages; ++i) data.push_back(sends ? numbered(length(i), i) : Bytes(length(i)));
    if (sends) {
      for (std::size_t i = 0; i < kMessages; ++i)
        messages.push_back(transport->send(1, i % 3, data[i].data(), data[i].size()));
    } else {
      for (std::size_t tag : {2, 0, 1})
        for (std::size_t i = tag; i < kMessages; i += 3)
          messages.push_back(transport->receive(0, tag, data[i].data(), data[i].size()));
    }
    for (auto message = messages.rbegin(); message != messages.rend(); ++message) finish(*transport, **message);
    for (std::size_t i = 0; i < kMessages; ++i) EXPECT_TRUE(data[i] == numbered(length(i), i)) << i;
    pass_on(*transport, 9, 1);
  });
}

TEST(TcpTransport, SendsMoreThanTheSystemTakesWithoutBlocking) {
  on_transports(2, [](std::unique_ptr<TcpTransport> transport) {
    constexpr std::size_t kBytes = 40'000'000;
    const Bytes out = numbered(kBytes);
    Bytes in(kBytes);
    const int other = 1 - transport->rank();
    const auto send = transport->send(other, 1, out.data(), kBytes);  // both, before anybody receives
    EXPECT_FALSE(send->has_finished());
    pass_on(*transport, 2, 10);
    const auto receive = transport->receive(other, 1, in.data(), kBytes);
    finish(*transport, *send);
    finish(*transport, *receive);
    EXPECT_TRUE(in == out);
  });
}

TEST(TcpTransport, RefusesAMessageOfAnotherLength) {
  for (const std::size_t bytes : {10, 100'000}) {
    for (const int change : {-1, 1}) {
      on_transports(2, [&](std::unique_ptr<TcpTransport> transport) {
        Bytes data(bytes + 1);
        if (transport->rank() == 0) {
          data = numbered(bytes + 1);
          const auto send = transport->send(1, 3, data.data(), bytes);
          EXPECT_NE(error_of([&] {
                      for (;;) {
                        send->has_finished();
                        transport->check();
                        transport->idle(1ms);
                      }
                    }),
                    "");
        } else {
          if (change > 0) std::this_thread::sleep_for(5ms);  // it may be there before
          const std::size_t expected = bytes + static_cast<std::size_t>(change);
          const auto receive = transport->receive(0, 3, data.data(), expected);
          const std::string said = error_of([&] { finish(*transport, *receive); });
          EXPECT_EQ(said, concat("rank 0 sends ", bytes, " bytes to rank 1, which expects ", expected));
          EXPECT_TRUE(data == Bytes(bytes + 1));
          transport->fail(said);
        }
      });
    }
  }
}

TEST(TcpTransport, LetsGoOfTheMemoryOfMessagesThatWereGivenUp) {
  std::atomic<bool> looked = false;
  on_transports(2, [&](std::unique_ptr<TcpTransport> transport) {
    constexpr std::size_t kBytes = 30'000'000;
    const int other = 1 - transport->rank();
    if (transport->rank() == 0) {
      Bytes data = numbered(kBytes), never = numbered(10);
      {
        const auto half = transport->send(1, 1, data.data(), kBytes), unsent = transport->send(1, 2, never.data(), 10);
        EXPECT_FALSE(half->has_finished());
        looked = true;
      }
      std::fill(data.begin(), data.end(), static_cast<unsigned char>(0));
    } else {
      while (!looked) std::this_thread::yield();  // nothing reads here meanwhile
      Bytes data(kBytes);
      {
        const auto receive = transport->receive(0, 3, data.data(), kBytes);
        EXPECT_FALSE(receive->has_finished());
      }
      const auto receive = transport->receive(0, 1, data.data(), kBytes);
      finish(*transport, *receive);
      EXPECT_TRUE(data == numbered(kBytes));
    }
    pass_on(*transport, 4, 1'000);
    // Given up in the middle.
    Bytes data = numbered(kBytes);
    if (transport->rank() == 0) {
      const auto send = transport->send(other, 5, data.data(), kBytes);
      finish(*transport, *send);
    } else {
      auto receive = transport->receive(other, 5, data.data(), kBytes);
      for (int i = 0; i < 3 && !receive->has_finished(); ++i) transport->idle(1ms);
      receive.reset();
      const Bytes before = data;
      pass_on(*transport, 6, 1'000);
      EXPECT_TRUE(data == before);
      return;
    }
    pass_on(*transport, 6, 1'000);
  });
}

TEST(TcpTransport, KeepsTheOwnerOfASendThatWasGivenUp) {
  std::atomic<bool> looked = false;
  on_transports(2, [&](std::unique_ptr<TcpTransport> transport) {
    constexpr std::size_t kBytes = 30'000'000;
    if (transport->rank() == 0) {
      auto data = std::make_shared<Bytes>(numbered(kBytes));
      const std::weak_ptr<Bytes> memory = data;
      {
        const auto send = transport->send(1, 1, data->data(), kBytes);
        send->keep(std::move(data));
      }
      EXPECT_FALSE(memory.expired());
      looked = true;
      finish(*transport, *transport->send(1, 2, nullptr, 0));
      EXPECT_TRUE(memory.expired());
    } else {
      Bytes data(kBytes);
      while (!looked) std::this_thread::yield();  // nothing reads here meanwhile
      finish(*transport, *transport->receive(0, 1, data.data(), kBytes));
      finish(*transport, *transport->receive(0, 2, nullptr, 0));
      EXPECT_TRUE(data == numbered(kBytes));
    }
  });
}

TEST(TcpTransport, WaitsForWhatARankSentBeforeItLeft) {
  on_transports(2, [](std::unique_ptr<TcpTransport> transport) {
    constexpr std::uint64_t kMessages = 50;
    const Bytes out = numbered(2'000);
    if (transport->rank() == 0) {
      for (std::uint64_t i = 0; i < kMessages; ++i) finish(*transport, *transport->send(1, i, out.data(), out.size()));
      return;
    }
    std::this_thread::sleep_for(20ms);
    Bytes in(out.size());
    for (std::uint64_t i = kMessages; i-- > 0;) finish(*transport, *transport->receive(0, i, in.data(), in.size()));
    EXPECT_TRUE(in == out);
    const auto more = transport->receive(0, kMessages, in.data(), in.size());
    EXPECT_EQ(error_of([&] { finish(*transport, *more); }), "rank 0 has left while rank 1 waits for it");
  });
}

TEST(TcpTransport, SeesAtOnceThatARankIsGone) {
  const auto told = messages(tcp_options(4), [](const TcpOptions& options) {
    if (options.rank == 2) {
      const TcpPeers peers = meet(options);
      std::this_thread::sleep_for(50ms);
      return;  // without a goodbye
    }
    const auto both = make_tcp_transports(options, 2);
    const auto pair = both[0]->split(options.rank, 0);  // waits for rank 2
  });
  for (const std::size_t r : {0, 1, 3}) EXPECT_EQ(told[r], "rank 2 is gone");
}

TEST(TcpTransport, SeesThatARankIsGoneInAllFamiliesAndAFailureInOne) {
  on_transports(1, [](std::unique_ptr<TcpTransport> alone) { EXPECT_EQ(alone->size(), 1); });
  std::atomic<int> passed = 0;
  const auto told = messages(tcp_options(3), [&](const TcpOptions& options) {
    auto both = make_tcp_transports(options, 2);
    pass_on(*both[0], 1, 10);
    ++passed;
    while (passed < 3) std::this_thread::yield();
    if (options.rank == 1) both[0]->fail("out of paper");
    const std::string said = error_of([&] {
      for (;;) {
        both[0]->check();
        both[0]->idle(1ms);
      }
    });
    EXPECT_EQ(said, "out of paper");
    both[0].reset();
    pass_on(*both[1], 1, 100'000);
    const auto group = both[1]->split(0, -options.rank);
    EXPECT_EQ(group->rank(), 2 - options.rank);
    pass_on(*group, 1, 100);
  });
  for (const std::string& text : told) EXPECT_EQ(text, "");
}

TEST(TcpTransport, RefusesABrokenFrame) {
  const auto told = messages(tcp_options(2), [](const TcpOptions& options) {
    if (options.rank == 1) {
      const TcpPeers peers = meet(options);
      const std::string nonsense(1'000, 'x');
      peers.sockets[0].send_some(nonsense.data(), nonsense.size());
      std::this_thread::sleep_for(100ms);
      return;
    }
    join(options);
  });
  EXPECT_EQ(told[0], "rank 1 is gone; rank 0 was joining its group");
}

TEST(TcpTransport, KnowsThatRanksShareThisMachine) {
  on_ranks(3, [](Communicator& comm) {
    EXPECT_EQ(comm.nodes(), (std::vector<int>{0, 0, 0}));
    comm.barrier();
  });
  on_ranks(3,
           [](Communicator& comm) {
             const Tensor x = tensor_of(context(1), std::vector<double>(300'000, comm.rank() + 1), {300'000});
             comm.all_reduce(x).wait();
             EXPECT_EQ(doubles(x)[299'999], 6);
           },
           {.nodes = {0, 1, 2}});
}

}  // namespace
}  // namespace keel
