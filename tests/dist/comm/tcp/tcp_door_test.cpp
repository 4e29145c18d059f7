// Who is let in at a rank's door, connections that are slow to come about, and words of rank 0 that come late.

#include "keel/dist/comm/tcp_door.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <thread>
#include <utility>

#include "keel/dist/comm/tcp_meeting.h"
#include "keel/runtime/error.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace std::chrono_literals;

thread_local int polls_without_news = 0;                  // of this thread, that come next
thread_local std::deque<std::function<void()>> at_polls;  // what happens before each of them
thread_local bool binds_to_its_peer = false;              // the next socket of this thread that connects
thread_local std::deque<int> errors_of_accepts;           // of this thread, that come next; 0 is none

// What this thread has waited for: for how long at most, and the last file.
struct Poll {
  int milliseconds, last_file;
};
thread_local std::vector<Poll> seen_polls;

}  // namespace
}  // namespace keel

// They stand before those of the system's library.
extern "C" int poll(pollfd* files, nfds_t count, int milliseconds) {
  keel::seen_polls.push_back({milliseconds, files[count - 1].fd});
  if (!keel::at_polls.empty()) {
    const std::function<void()> happens = std::move(keel::at_polls.front());
    keel::at_polls.pop_front();
    happens();
  }
  if (keel::polls_without_news > 0) {
    --keel::polls_without_news;
    return 0;
  }
  timespec limit{milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
  return static_cast<int>(
      ::syscall(SYS_ppoll, files, count, milliseconds < 0 ? nullptr : &limit, nullptr, std::size_t{0}));
}
extern "C" int connect(int file, const sockaddr* to, socklen_t length) {
  if (std::exchange(keel::binds_to_its_peer, false) && ::bind(file, to, length) != 0) return -1;
  const auto result = static_cast<int>(::syscall(SYS_connect, file, to, length));
  if (result != 0 || keel::polls_without_news == 0) return result;
  errno = EINPROGRESS;
  return -1;
}
extern "C" int accept4(int file, sockaddr* from, socklen_t* length, int flags) {
  const int error = keel::errors_of_accepts.empty() ? 0 : keel::errors_of_accepts.front();
  if (!keel::errors_of_accepts.empty()) keel::errors_of_accepts.pop_front();
  if (error == 0) return static_cast<int>(::syscall(SYS_accept4, file, from, length, flags));
  errno = error;
  return -1;
}

namespace keel {
namespace {

using testing::error_of;

auto door_later(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

class OpenDoor : public ::testing::Test {
 protected:
  Socket visitor() const { return connect_to(listener_->address(), "the door", door_later(20s)); }
  static void introduce(const Socket& socket, int rank) {
    const TcpIntroduction words{.hello = {.token = kToken}, .rank = rank, .size = 3, .port = 1};
    EXPECT_TRUE(write_all(socket, &words, sizeof(words), door_later(20s)));
  }

  static constexpr std::uint64_t kToken = 77;
  std::shared_ptr<const TcpListener> listener_ = std::make_shared<const TcpListener>(TcpAddress{"127.0.0.1", 0});
  TcpDoor door_{listener_, kToken, std::chrono::seconds(20)};
};

std::array<Socket, 2> two_ends() {
  std::array<int, 2> ends = {};
  KEEL_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0, "no sockets");
  return {Socket(ends[0]), Socket(ends[1])};
}

// Connections that are silent, as that of a rank which has a seat, end no wait.
TEST_F(OpenDoor, WaitsForWhoIsSlowToSpeak) {
  std::array<Socket, 2> seat = two_ends();
  std::vector<Socket> seated(3);
  seated[1] = std::move(seat[0]);
  const Socket silent = visitor(), slow = visitor();
  const std::jthread speaks([&] {
    std::this_thread::sleep_for(30ms);
    introduce(slow, 2);
  });
  const std::optional<TcpGuest> guest = door_.next(door_later(20s), seated);
  ASSERT_TRUE(guest);
  EXPECT_EQ(guest->introduction.rank, 2);
  EXPECT_FALSE(door_.is_full());
}

TEST_F(OpenDoor, ReturnsEarlyWhereOneOfTheSeatedMoves) {
  for (const bool ends : {false, true}) {
    std::array<Socket, 2> seat = two_ends();
    std::vector<Socket> seated(3);
    seated[2] = std::move(seat[0]);
    if (ends) seat[1].close();
    else EXPECT_EQ(seat[1].send_some("!", 1), 1);
    const auto deadline = door_later(20s);
    EXPECT_FALSE(door_.next(deadline, seated));
    EXPECT_LT(std::chrono::steady_clock::now(), deadline) << "it has waited for others";
  }
}

// The second visitor finds no file, and the first one has just come.
TEST_F(OpenDoor, HearsAGuestThatHasJustComeIntoAFullHouse) {
  const Socket first = visitor(), second = visitor();
  rlimit files = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  rlim_t second_free = 0;
  {
    const Socket lowest(::dup(first.file())), next(::dup(first.file()));
    second_free = static_cast<rlim_t>(next.file());
  }
  const rlimit none_but_one = {second_free, files.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none_but_one), 0);
  bool is_full = false;
  at_polls = {[] {},
              [&] {
                is_full = door_.is_full();
                introduce(first, 1);
              }};
  const std::optional<TcpGuest> guest = door_.next(door_later(20s), {});
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_TRUE(is_full);
  ASSERT_TRUE(guest);
  EXPECT_EQ(guest->introduction.rank, 1);
}

// Who has been sent away leaves a file to the next one.
TEST_F(OpenDoor, ListensAgainOnceAFullHouseHasSentTheOldestAway) {
  const Socket silent = visitor(), waiting = visitor();
  errors_of_accepts = {0, EMFILE, EMFILE};
  seen_polls.clear();
  at_polls = {[] {}, [] {}, [&] { introduce(waiting, 1); }};
  const std::optional<TcpGuest> guest = door_.next(door_later(20s), {});
  ASSERT_TRUE(guest);
  EXPECT_EQ(guest->introduction.rank, 1);
  ASSERT_GE(seen_polls.size(), 3u);
  EXPECT_GE(seen_polls[0].last_file, 0) << "it listens";
  EXPECT_EQ(seen_polls[1].last_file, -1) << "a call that it cannot answer would end the wait";
  EXPECT_LE(seen_polls[1].milliseconds, 50);
  EXPECT_EQ(seen_polls[2].last_file, seen_polls[0].last_file);
}

// The deadline, and that of a guest who says nothing.
TEST_F(OpenDoor, WaitsForNothingBeyondADeadline) {
  for (const bool is_guests : {false, true}) {
    const Socket silent = visitor();
    Socket next;
    TcpDoor door(listener_, kToken, is_guests ? 20ms : 20s);
    at_polls = {[] {}, [] {},
                [&] {
                  next = visitor();
                  introduce(next, 2);
                }};
    seen_polls.clear();
    EXPECT_EQ(door.next(door_later(is_guests ? 20s : 20ms), {}).has_value(), is_guests);
    at_polls.clear();
    ASSERT_GE(seen_polls.size(), 2u);
    EXPECT_LE(seen_polls[1].milliseconds, 20);
  }
}

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

TEST_F(OpenDoor, LetsInAllThatHaveComeInTheirOrder) {
  std::vector<Socket> visitors;
  for (int rank = 0; rank < 3; ++rank) introduce(visitors.emplace_back(visitor()), rank);
  for (int rank = 0; rank < 3; ++rank) {
    const std::optional<TcpGuest> guest = door_.next(door_later(20s), {});
    ASSERT_TRUE(guest);
    EXPECT_EQ(guest->introduction.rank, rank);
  }
  EXPECT_FALSE(door_.next(door_later(10ms), {})) << "nobody is left";
}

// Rank 0 alone knows who did not come, and may tell it later.
TEST(TcpGrace, ARankWaitsForTheReasonBeyondItsTimeOut) {
  const auto listener = std::make_shared<const TcpListener>(TcpAddress{"127.0.0.1", 0});
  const std::jthread zero([&] {
    TcpDoor door(listener, 0xcbf2'9ce4'8422'2325, 20s);  // the hash of an empty token
    const std::optional<TcpGuest> guest = door.next(door_later(20s), {});
    ASSERT_TRUE(guest);
    std::this_thread::sleep_for(60ms);
    refuse(guest->socket, "rank 2 did not come", TcpVerdict::others_failed);
  });
  EXPECT_EQ(error_of([&] { meet({.rank = 1, .size = 3, .address = to_string(listener->address()), .timeout = 20ms}); }),
            "rank 2 did not come");
}

TEST(TcpGrace, WhoeverGivesNoWholeAnswerIsNoKeel) {
  const TcpAnswer answers[] = {{.magic = kTcpMagic + 1, .verdict = TcpVerdict::wrong_input, .bytes = 3},
                               {.verdict = TcpVerdict::wrong_input, .bytes = 4},
                               {.bytes = 3 * 64 + 1},
                               {.bytes = 3 * 64}};
  for (std::size_t i = 0; i <= std::size(answers); ++i) {
    const auto listener = std::make_shared<const TcpListener>(TcpAddress{"127.0.0.1", 0});
    const std::jthread zero([&] {
      TcpDoor door(listener, 0xcbf2'9ce4'8422'2325, 20s);
      const std::optional<TcpGuest> guest = door.next(door_later(20s), {});
      ASSERT_TRUE(guest);
      if (i == std::size(answers)) return;  // without a word
      EXPECT_TRUE(write_all(guest->socket, &answers[i], sizeof(TcpAnswer), door_later(20s)));
      EXPECT_TRUE(write_all(guest->socket, "any", 3, door_later(20s)));
    });
    const std::string address = to_string(listener->address());
    EXPECT_EQ(error_of([&] { meet({.rank = 1, .size = 3, .address = address, .timeout = 20s}); }),
              concat("rank 0 at ", address, " ended before all ranks had come, or is no keel"))
        << i;
  }
}

TEST(TcpConnecting, GoesOnWhereASecondBringsNoNews) {
  const TcpListener listener({"127.0.0.1", 0});
  polls_without_news = 3;
  EXPECT_TRUE(connect_to(listener.address(), "the listener", door_later(20s)).is_open());
  EXPECT_EQ(polls_without_news, 0);
  EXPECT_TRUE(listener.accept().socket.is_open());
  EXPECT_FALSE(listener.accept().socket.is_open()) << "it has called twice";
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
