// Who is let in at a rank's door, and how bytes pass it.

#include "keel/dist/comm/tcp_door.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "tests/dist/comm/tcp/system_calls.h"

namespace keel {
namespace {

using namespace keel::testing;
using namespace std::chrono_literals;

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

// What comes behind it is for others to read.
TEST_F(OpenDoor, HearsAnIntroductionInPieces) {
  const Socket slow = visitor();
  const TcpIntroduction words{.hello = {.token = kToken}, .rank = 2, .size = 3, .port = 1, .host = 12'345};
  const std::string said = std::string(reinterpret_cast<const char*>(&words), sizeof(words)) + "more";
  const auto say = [&](std::size_t from, std::size_t to) {
    EXPECT_TRUE(write_all(slow, said.data() + from, to - from, door_later(20s)));
  };
  at_polls = {[&] { say(0, 1); }, [&] { say(1, 16); }, [&] { say(16, 27); }, [&] { say(27, said.size()); }};
  const std::optional<TcpGuest> guest = door_.next(door_later(20s), {});
  EXPECT_TRUE(at_polls.empty());
  ASSERT_TRUE(guest);
  EXPECT_EQ(std::memcmp(&guest->introduction, &words, sizeof(words)), 0);
  std::array<char, 5> behind = {};
  EXPECT_EQ(guest->socket.receive_some(behind.data(), 5), 4);
  EXPECT_EQ(std::string(behind.data()), "more");
}

TEST_F(OpenDoor, KnowsAStrayByItsFirstWords) {
  const Socket stray = visitor(), right = visitor();
  const std::string words(sizeof(TcpHello), 'x');
  EXPECT_TRUE(write_all(stray, words.data(), words.size(), door_later(20s)));
  at_polls = {[] {}, [&] { introduce(right, 2); }};
  ASSERT_TRUE(door_.next(door_later(20s), {}));
  char any = 0;
  EXPECT_EQ(stray.receive_some(&any, 1), -1);
}

TEST_F(OpenDoor, RefusesAnotherVersionWhateverItsToken) {
  for (const std::uint64_t token : {kToken, kToken + 1}) {
    const Socket other = visitor(), right = visitor();
    const TcpIntroduction words{.hello = {.version = kTcpVersion + 1, .token = token}, .rank = 1, .size = 3, .port = 1};
    EXPECT_TRUE(write_all(other, &words, sizeof(words), door_later(20s)));
    introduce(right, 2);
    const std::optional<TcpGuest> guest = door_.next(door_later(20s), {});
    ASSERT_TRUE(guest);
    EXPECT_EQ(guest->introduction.rank, 2);
    TcpAnswer answer;
    EXPECT_TRUE(read_all(other, &answer, sizeof(answer), door_later(20s)));
    EXPECT_EQ(answer.verdict, TcpVerdict::wrong_input);
    std::string reason(answer.bytes, '\0');
    EXPECT_TRUE(read_all(other, reason.data(), reason.size(), door_later(20s)));
    EXPECT_EQ(reason, "rank 0 runs another version of keel");
  }
}

// Longer than a guest has in a full house.
TEST_F(OpenDoor, IsPatientWhereThereIsRoom) {
  const Socket slow = visitor();
  const auto rest = [] { std::this_thread::sleep_for(30ms); };
  at_polls = {[] {},
              [&] {
                polls_without_news = 2;
                rest();
              },
              rest, [&] { introduce(slow, 2); }};
  const std::optional<TcpGuest> guest = door_.next(door_later(20s), {});
  EXPECT_TRUE(at_polls.empty());
  ASSERT_TRUE(guest);
  EXPECT_EQ(guest->introduction.rank, 2);
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
  seen_polls.clear();
  const std::optional<TcpGuest> guest = door_.next(door_later(20s), seated);
  ASSERT_TRUE(guest);
  EXPECT_EQ(guest->introduction.rank, 2);
  EXPECT_FALSE(door_.is_full());
  for (const Poll& poll : seen_polls) EXPECT_EQ(poll.milliseconds, 1'000) << "a second at most, and no less";
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
  EXPECT_GT(seen_polls[1].milliseconds, 0);
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

TEST(TcpDoor, MovesWhatMovesAtOnceEvenAfterTheDeadline) {
  const std::array<Socket, 2> ends = two_ends();
  std::array<char, 2> arrived = {};
  EXPECT_TRUE(write_all(ends[0], "x", 1, door_later(-1s)));
  EXPECT_TRUE(read_all(ends[1], arrived.data(), 1, door_later(-1s)));
  EXPECT_TRUE(write_all(ends[0], "yz", 2, door_later(-1s)));
  EXPECT_TRUE(read_all(ends[1], arrived.data(), 2, door_later(-1s)));
  EXPECT_EQ(arrived, (std::array<char, 2>{'y', 'z'}));
}

// Nobody reads before it waits.
TEST(TcpDoor, WaitsForItsRefusalToBeTaken) {
  const std::array<Socket, 2> ends = two_ends();
  const std::string filler(100'000, 'x');
  while (ends[0].send_some(filler.data(), filler.size()) > 0) continue;
  std::string arrived;
  const auto take = [&] {
    std::string some(filler.size(), '\0');
    for (std::ptrdiff_t received = 1; received > 0;) {
      received = ends[1].receive_some(some.data(), some.size());
      if (received > 0) arrived.append(some, 0, static_cast<std::size_t>(received));
    }
  };
  at_polls = {take};
  refuse(ends[0], "out of paper", TcpVerdict::others_failed);
  EXPECT_TRUE(at_polls.empty());
  at_polls.clear();
  take();
  EXPECT_TRUE(arrived.ends_with("out of paper"));
}

}  // namespace
}  // namespace keel
