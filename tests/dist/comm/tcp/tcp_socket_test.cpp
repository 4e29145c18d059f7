// Connections that are slow to come about or end, ports and files, and words of rank 0 that come late.

#include "keel/dist/comm/tcp_socket.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <thread>

#include "keel/dist/comm/tcp_door.h"
#include "keel/dist/comm/tcp_meeting.h"
#include "tests/dist/comm/tcp/system_calls.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace keel::testing;
using namespace std::chrono_literals;

TEST(TcpListening, KnowsWhichErrorsSayThatFilesOrMemoryRanOut) {
  const TcpListener listener({"127.0.0.1", 0});
  for (const int error : {EMFILE, ENFILE, ENOBUFS, ENOMEM, EAGAIN, EBADF}) {
    errors_of_accepts = {EINTR, ECONNABORTED, error};  // who has gone again is nobody
    const TcpListener::Accepted accepted = listener.accept();
    EXPECT_TRUE(errors_of_accepts.empty());
    EXPECT_FALSE(accepted.socket.is_open());
    EXPECT_EQ(accepted.lacks_files, error != EAGAIN && error != EBADF) << std::strerror(error);
  }
}

// Rank 0 alone knows who did not come, and may tell it later.
TEST(TcpGrace, ARankWaitsForTheReasonBeyondItsTimeOut) {
  const auto listener = std::make_shared<const TcpListener>(TcpAddress{"127.0.0.1", 0});
  const std::jthread zero([&] {
    TcpDoor door(listener, 0x8594'4171'f739'67e8, 20s);  // FNV-1a of "foobar", as its authors give it
    const std::optional<TcpGuest> guest = door.next(door_later(20s), {});
    ASSERT_TRUE(guest);
    std::this_thread::sleep_for(60ms);
    refuse(guest->socket, "rank 2 did not come", TcpVerdict::others_failed);
  });
  EXPECT_EQ(
      error_of([&] {
        meet({.rank = 1, .size = 3, .address = to_string(listener->address()), .timeout = 20ms, .token = "foobar"});
      }),
      "rank 2 did not come");
}

TEST(TcpGrace, WhoeverGivesNoWholeAnswerIsNoKeel) {
  // And how many bytes follow.
  const std::pair<TcpAnswer, std::size_t> answers[] = {
      {{.magic = kTcpMagic + 1, .verdict = TcpVerdict::wrong_input, .bytes = 3}, 3},
      {{.verdict = TcpVerdict::wrong_input, .bytes = 4}, 3},
      {{.bytes = 2 * 64}, 2 * 64},
      {{.bytes = 3 * 64 + 1}, 3 * 64 + 1},
      {{.bytes = 3 * 64}, 3}};
  for (std::size_t i = 0; i <= std::size(answers); ++i) {
    const auto listener = std::make_shared<const TcpListener>(TcpAddress{"127.0.0.1", 0});
    const std::jthread zero([&] {
      TcpDoor door(listener, 0xcbf2'9ce4'8422'2325, 20s);
      const std::optional<TcpGuest> guest = door.next(door_later(20s), {});
      ASSERT_TRUE(guest);
      if (i == std::size(answers)) return;  // without a word
      const std::string said = std::string(reinterpret_cast<const char*>(&answers[i].first), sizeof(TcpAnswer)) +
                               std::string(answers[i].second, '1');
      EXPECT_TRUE(write_all(guest->socket, said.data(), said.size(), door_later(20s)));
    });
    const std::string address = to_string(listener->address());
    EXPECT_EQ(error_of([&] { meet({.rank = 1, .size = 3, .address = address, .timeout = 20s}); }),
              concat("rank 0 at ", address, " ended before all ranks had come, or is no keel"))
        << i;
  }
}

// What rank 0 says of them, the last of three ranks being the one that hears it.
TEST(TcpGrace, HostsAreThoseThatRankZeroNames) {
  struct Seat {
    std::uint64_t host = 0;
    std::int32_t port = 0;
    char address[52] = "127.0.0.1";
  };
  const auto listener = std::make_shared<const TcpListener>(TcpAddress{"127.0.0.1", 0});
  const TcpListener one({"127.0.0.1", 0});
  const std::vector<std::uint64_t> hosts = {0x1111'1111'1111'1111, 0x2222'2222'2222'2222, 0x3333'3333'3333'3333};
  std::vector<Seat> seats(3);
  for (std::size_t r = 0; r < 3; ++r) seats[r].host = hosts[r];
  seats[1].port = one.address().port;
  const std::jthread zero([&] {
    TcpDoor door(listener, 0xcbf2'9ce4'8422'2325, 20s);  // the hash of an empty token
    const std::optional<TcpGuest> guest = door.next(door_later(20s), {});
    ASSERT_TRUE(guest);
    const TcpAnswer answer{.bytes = 3 * sizeof(Seat)};
    EXPECT_TRUE(write_all(guest->socket, &answer, sizeof(answer), door_later(20s)));
    EXPECT_TRUE(write_all(guest->socket, seats.data(), answer.bytes, door_later(20s)));
  });
  const TcpPeers peers = meet({.rank = 2, .size = 3, .address = to_string(listener->address()), .timeout = 20s});
  EXPECT_EQ(peers.hosts, hosts);
  EXPECT_TRUE(one.accept().socket.is_open());
}

TEST(TcpConnecting, EndsAtItsDeadline) {
  const TcpListener listener({"127.0.0.1", 0});
  polls_without_news = std::numeric_limits<int>::max();
  seen_polls.clear();
  EXPECT_EQ(error_of([&] { connect_to(listener.address(), "the listener", door_later(5ms)); }),
            concat("the listener does not answer at ", to_string(listener.address()), ": Connection timed out"));
  polls_without_news = 0;
  ASSERT_FALSE(seen_polls.empty());
  for (const Poll& poll : seen_polls) EXPECT_LE(poll.milliseconds, 5);
}

TEST(TcpConnecting, GoesOnWhereASecondBringsNoNews) {
  const TcpListener listener({"127.0.0.1", 0});
  polls_without_news = 3;
  EXPECT_TRUE(connect_to(listener.address(), "the listener", door_later(20s)).is_open());
  EXPECT_EQ(polls_without_news, 0);
  EXPECT_TRUE(listener.accept().socket.is_open());
  EXPECT_FALSE(listener.accept().socket.is_open()) << "it has called twice";
}

int option_of(const Socket& socket, int level, int option) {
  int value = -1;
  socklen_t length = sizeof(value);
  EXPECT_EQ(::getsockopt(socket.file(), level, option, &value, &length), 0);
  return value;
}

// Small messages go at once, and a machine that has lost its power is missed.
TEST(TcpConnecting, TunesBothEnds) {
  const TcpListener listener({"127.0.0.1", 0});
  const Socket calls = connect_to(listener.address(), "the listener", door_later(20s));
  const Socket called = listener.accept().socket;
  for (const Socket* socket : {&calls, &called}) {
    EXPECT_NE(option_of(*socket, IPPROTO_TCP, TCP_NODELAY), 0);
    EXPECT_NE(option_of(*socket, SOL_SOCKET, SO_KEEPALIVE), 0);
  }
}

// The connection that its own end has closed is kept by the system for a while.
TEST(TcpListening, TakesAPortWhoseConnectionsHaveEnded) {
  TcpAddress address{"127.0.0.1", 0};
  {
    const TcpListener before(address);
    address = before.address();
    const Socket calls = connect_to(address, "the listener", door_later(20s));
    Socket called = before.accept().socket;
    ASSERT_TRUE(called.is_open());
    called.close();
  }
  EXPECT_EQ(TcpListener(address).address().port, address.port);
}

// Of the two kinds of addresses, one of which a machine may lack. A port that is taken in one of them is taken.
TEST(TcpListening, NeedsOneKindOfAddresses) {
  if (!Socket(::socket(AF_INET6, SOCK_STREAM, 0)).is_open()) GTEST_SKIP() << "this machine has no addresses of IPv6";
  const auto listen = [](std::deque<int> errors) {
    errors_of_binds = std::move(errors);
    const std::string told = error_of([] { TcpListener listener({"node7", 0}); });
    const std::size_t left = errors_of_binds.size();
    errors_of_binds.clear();
    return concat(told, told.empty() ? "" : "; ", left, " left");
  };
  EXPECT_EQ(listen({EADDRNOTAVAIL, 0, 0}), "1 left");
  EXPECT_EQ(listen({EADDRINUSE, 0, 0}), "cannot listen at node7:0: Address already in use; 2 left");
  EXPECT_EQ(listen({EADDRNOTAVAIL, EACCES, 0}), "cannot listen at node7:0: Permission denied; 1 left");
}

// What an earlier call has left behind says nothing of this one.
TEST(TcpSocket, ReachesItsEndWhateverHappenedBefore) {
  std::array<Socket, 2> ends = two_ends();
  char any = 0;
  errno = EAGAIN;
  EXPECT_EQ(ends[0].send_some("abc", 3), 3);
  EXPECT_EQ(ends[1].receive_some(&any, 1), 1);
  EXPECT_EQ(any, 'a');
  ends[0].close();
  EXPECT_FALSE(ends[0].is_open());
  std::array<char, 3> rest = {};
  EXPECT_EQ(ends[1].receive_some(rest.data(), rest.size()), 2);
  errno = EAGAIN;
  EXPECT_EQ(ends[1].receive_some(&any, 1), -1);
}

// The one that a program reads from by default, and has closed.
TEST(TcpSocket, MayHaveTheFirstFileOfAll) {
  const int kept = ::dup(STDIN_FILENO);
  std::array<Socket, 2> ends = two_ends();
  ASSERT_EQ(::dup2(ends[0].file(), STDIN_FILENO), STDIN_FILENO);
  ends[0].close();
  Socket first(STDIN_FILENO);
  EXPECT_TRUE(first.is_open());
  first.close();
  char any = 0;
  EXPECT_EQ(ends[1].receive_some(&any, 1), -1) << "it is closed";
  if (kept >= 0) {
    EXPECT_EQ(::dup2(kept, STDIN_FILENO), STDIN_FILENO);
    ::close(kept);
  }
}

// As happens by chance where the system chooses the port that is called for the one who calls.
TEST(TcpConnecting, TakesNoConnectionToItself) {
  const int port = TcpListener({"127.0.0.1", 0}).address().port;
  binds_to_its_peer = true;
  EXPECT_EQ(error_of([&] {
              connect_to({"127.0.0.1", port}, "rank 0", door_later(10ms));
            }),
            concat("rank 0 does not answer at 127.0.0.1:", port, ": Connection refused"));
  EXPECT_FALSE(binds_to_its_peer);
}

}  // namespace
}  // namespace keel
