// How ranks find each other by an address, and what is said when they do not.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <thread>

#include "keel/dist/comm/tcp_door.h"
#include "keel/dist/comm/tcp_meeting.h"
#include "tests/dist/comm/messages.h"
#include "tests/dist/comm/tcp/tcp_ranks.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace keel::testing;
using namespace std::chrono_literals;

// Meets the others, or fails as all do.
std::function<void(const TcpOptions&)> joining_or(ErrorKind kind) {
  return [kind](const TcpOptions& mine) {
    try {
      join(mine);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      throw;
    }
  };
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(TcpAddress, IsHostAndPort) {
  EXPECT_EQ(to_string(TcpAddress::parse("node7:4000")), "node7:4000");
  EXPECT_EQ(TcpAddress::parse("[::1]:80").host, "::1");
  EXPECT_EQ(to_string(TcpAddress::parse("[::1]:80")), "[::1]:80");
  for (const char* text : {"", ":", "node7", "node7:", ":4000", "node7:x", "node7:70000", "node7:-1", "::1:80", "a:1 ",
                           "[]:1", "[::1:80", "::1]:80"})
    EXPECT_TRUE(has(error_of([&] { TcpAddress::parse(text); }), "an address is written HOST:PORT")) << text;
}

TEST(TcpAddress, KnowsALoopbackByItsText) {
  for (const char* host : {"localhost", "::1", "127.0.0.1", "127.9.8.7"})
    EXPECT_TRUE((TcpAddress{host, 1}.is_loopback())) << host;
  for (const char* host : {"", "node7", "10.0.0.1", "128.0.0.1", "127.example", "127.0.0", "::2", "localhost.org"})
    EXPECT_FALSE((TcpAddress{host, 1}.is_loopback())) << host;
}

TEST(TcpAddress, HasAnyPortOfSixteenBits) {
  for (const int port : {0, 1, 65'534, 65'535}) EXPECT_EQ(TcpAddress::parse(concat("node7:", port)).port, port);
  for (const char* port : {"65536", "-1", "1 ", " 1", "+1", "0x1", ""})
    EXPECT_NE(error_of([&] { TcpAddress::parse(concat("node7:", port)); }), "") << port;
}

// Many times what the system takes at once.
TEST(TcpDoor, MovesAllBytesByTheDeadlineOrSaysThatItDidNot) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  Socket from(ends[0]);
  const Socket to(ends[1]);
  const auto later = [](auto time) { return std::chrono::steady_clock::now() + time; };
  const Bytes sent = numbered(3'000'000);
  Bytes arrived(sent.size());
  {
    const std::jthread writes([&] { EXPECT_TRUE(write_all(from, sent.data(), sent.size(), later(20s))); });
    EXPECT_TRUE(read_all(to, arrived.data(), arrived.size(), later(20s)));
  }
  EXPECT_TRUE(arrived == sent);
  EXPECT_FALSE(write_all(from, sent.data(), sent.size(), later(20ms))) << "nobody reads";
  from.close();
  EXPECT_FALSE(read_all(to, arrived.data(), arrived.size(), later(20s))) << "fewer have come";
  char any = 0;
  EXPECT_FALSE(read_all(to, &any, 1, later(20s))) << "at the end";
}

TEST(TcpMeeting, OfOneRankHasASeatForItAlone) {
  const TcpListener taken({"127.0.0.1", 0});  // which it does not need
  const TcpPeers alone = meet({.rank = 0, .size = 1, .address = to_string(taken.address())});
  ASSERT_EQ(alone.sockets.size(), 1u);
  EXPECT_FALSE(alone.sockets[0].is_open());
  EXPECT_EQ(alone.hosts.size(), 1u);
}

TEST(TcpMeeting, JoinsAnyNumberOfRanksInAnyOrder) {
  for (const int n : {1, 2, 3, 4, 8}) {
    std::vector<TcpOptions> options = tcp_options(n);
    std::reverse(options.begin(), options.end());
    for (const std::string& text : messages(options, join)) EXPECT_EQ(text, "") << n;
  }
}

TEST(TcpMeeting, WaitsForRankZeroToBeStartedLast) {
  std::vector<TcpOptions> options = tcp_options(3);
  const TcpAddress address = options[0].listener->address();
  options[0].listener.reset();  // nobody listens for now
  for (const std::string& text : messages(options, [&](const TcpOptions& mine) {
         if (mine.rank == 0) std::this_thread::sleep_for(100ms);
         join(mine);
       }))
    EXPECT_EQ(text, "") << to_string(address);
}

TEST(TcpMeeting, ListensAtAHostsName) {
  std::vector<TcpOptions> options = tcp_options(2);
  const auto listener = std::make_shared<const TcpListener>(TcpAddress{"localhost", 0});
  for (TcpOptions& one : options) one.address = to_string(listener->address());
  options[0].listener = listener;
  for (const std::string& text : messages(options, join)) EXPECT_EQ(text, "");
}

TEST(TcpMeeting, IsReachedByOtherMachinesUnlessItsAddressIsALoopback) {
  const TcpListener anywhere({"some-other-name", 0});
  Socket socket =
      connect_to({"127.0.0.1", anywhere.address().port}, "the listener", std::chrono::steady_clock::now() + 5s);
  EXPECT_TRUE(socket.is_open());
  EXPECT_TRUE(address_of_peer(socket).is_loopback());
  // Also where the port is one for addresses of both kinds.
  EXPECT_EQ(address_of_peer(anywhere.accept().socket).host, "127.0.0.1");
}

TEST(TcpMeeting, TellsAllWhichRankDidNotCome) {
  std::vector<TcpOptions> options = tcp_options(4);
  for (TcpOptions& one : options) one.timeout = 500ms;
  const std::string address = options[0].address;
  options.erase(options.begin() + 2);
  for (const std::string& text : messages(options, joining_or(ErrorKind::peer)))
    EXPECT_EQ(text, "rank 2 of 4 did not come to " + address + " within 500 ms");
  options = tcp_options(4);
  options[0].timeout = 100ms;
  options.resize(1);
  EXPECT_TRUE(has(messages(options, join)[0], "ranks 1, 2 and 3 of 4 did not come"));
}

// The times are over before they begin, so that the test need not wait.
TEST(TcpMeeting, TellsTimesInSecondsWhereTheyAreWholeOnes) {
  for (const auto& [time, text] : {std::pair(-1'000ms, "-1 s"), {-2'000ms, "-2 s"}, {-1'500ms, "-1500 ms"}}) {
    TcpOptions alone = tcp_options(2)[0];
    alone.timeout = time;
    EXPECT_EQ(error_of([&] { meet(alone); }), concat("rank 1 of 2 did not come to ", alone.address, " within ", text));
  }
}

TEST(TcpMeeting, TellsThatRankZeroDoesNotAnswer) {
  const Socket taken(::socket(AF_INET, SOCK_STREAM, 0));  // so that nobody else can listen there
  sockaddr_in at = {.sin_family = AF_INET, .sin_port = 0, .sin_addr = {::htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t length = sizeof at;
  ASSERT_EQ(::bind(taken.file(), reinterpret_cast<const sockaddr*>(&at), length), 0);
  ASSERT_EQ(::getsockname(taken.file(), reinterpret_cast<sockaddr*>(&at), &length), 0);
  std::vector<TcpOptions> options = tcp_options(2);
  options.erase(options.begin());
  options[0].address = concat("127.0.0.1:", ::ntohs(at.sin_port));
  options[0].timeout = 100ms;
  const std::string said = messages(options, join)[0];
  EXPECT_TRUE(has(said, "rank 0 does not answer at 127.0.0.1:")) << said;
  EXPECT_TRUE(has(said, "refused")) << said;
}

TEST(TcpMeeting, TellsThatARankDiedBeforeTheOthersCame) {
  for (const std::uint64_t port : {1, 65'535}) {  // where it says that it listens
    std::vector<TcpOptions> options = tcp_options(4);
    const TcpAddress address = options[0].listener->address();
    options.resize(1);
    const std::jthread one([&] {
      const Socket socket = connect_to(address, "rank 0", std::chrono::steady_clock::now() + 20s);
      // What rank 1 of 4 says first, without a token.
      const std::uint64_t said[] = {0x1'6c65'656b, 0xcbf2'9ce4'8422'2325, 1 | std::uint64_t{4} << 32, port, 0};
      socket.send_some(said, sizeof(said));
      std::this_thread::sleep_for(20ms);
    });
    EXPECT_EQ(messages(options, join)[0], "rank 1 is gone before all ranks had come");
  }
}

TEST(TcpMeeting, SendsStraysAwayAndGoesOn) {
  std::vector<TcpOptions> options = tcp_options(3);
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  const TcpAddress address = options[0].listener->address();
  const auto stray = [&](const std::string& text) {
    Socket socket = connect_to(address, "the listener", deadline);
    socket.send_some(text.data(), text.size());
    return socket;
  };
  const Socket silent = stray(""), browser = stray("GET / HTTP/1.1\r\nHost: keel\r\n\r\n" + std::string(5'000, 'x'));
  const Socket hesitant = stray("keel"), zeros = stray(std::string(40, '\0'));
  { const Socket gone = stray("k"); }
  TcpOptions other = options[1];
  other.token = "another run";
  std::promise<void> is_told;
  const std::shared_future<void> told = is_told.get_future().share();
  const auto texts = messages({options[0], other, options[1], options[2]}, [&](const TcpOptions& mine) {
    if (mine.token.empty() && mine.rank != 0) told.wait();
    if (mine.token.empty()) return join(mine);
    EXPECT_EQ(error_of([&] { join(mine); }), "rank 0 belongs to another run: its token differs");
    is_told.set_value();
  });
  EXPECT_EQ(texts, std::vector<std::string>(4));
  char any = 0;
  EXPECT_EQ(browser.receive_some(&any, 1), -1);
}

TEST(TcpMeeting, TellsAnyTwoTokensApart) {
  const std::pair<std::string, std::string> pairs[] = {
      {"run 1", "run 2"}, {"ab", "ba"}, {"a", ""}, {"", "a"}, {"aa", "a"}};
  for (const auto& pair : pairs) {
    std::vector<TcpOptions> options = tcp_options(2);
    for (TcpOptions& one : options) one.token = pair.first;
    EXPECT_EQ(messages(options,
                       [&](const TcpOptions& mine) {
                         TcpOptions wrong = mine;
                         wrong.token = pair.second;
                         if (mine.rank == 1) {
                           EXPECT_EQ(error_of([&] { join(wrong); }), "rank 0 belongs to another run: its token differs")
                               << pair.first << " and " << pair.second;
                         }
                         join(mine);
                       }),
              std::vector<std::string>(2));
  }
}

TEST(TcpMeeting, EndsWhereRanksOfOneTokenContradictEachOther) {
  std::vector<TcpOptions> options = tcp_options(2);
  for (TcpOptions& one : options) one.token = "a run";
  options[1].size = 3;
  for (const std::string& text : messages(options, joining_or(ErrorKind::input)))
    EXPECT_EQ(text, "rank 1 was started as one of 3 ranks, rank 0 as one of 2");
  options = tcp_options(3);
  for (TcpOptions& one : options) one.token = "a run";
  options[2].rank = 1;
  for (const std::string& text : messages(options, joining_or(ErrorKind::input)))
    EXPECT_EQ(text, "two processes say that they are rank 1 of 3");
}

// Introduces itself to rank 0, which answers at once only where it sends somebody away; the reason.
std::string reason_to_leave(const TcpAddress& address, const TcpIntroduction& introduction) {
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  const Socket socket = connect_to(address, "rank 0", deadline);
  TcpAnswer answer;
  if (!write_all(socket, &introduction, sizeof(introduction), deadline) ||
      !read_all(socket, &answer, sizeof(answer), deadline) || answer.verdict != TcpVerdict::wrong_input)
    return "not refused";
  std::string reason(answer.bytes, '\0');
  return read_all(socket, reason.data(), reason.size(), deadline) ? reason : "cut short";
}

TEST(TcpMeeting, SendsStrangersAwayThatCannotBeRanksAndGoesOn) {
  std::vector<TcpOptions> options = tcp_options(3);
  const TcpAddress address = options[0].listener->address();
  std::vector<std::string> told;
  options[0].tell = [&](const std::string& line) { told.push_back(line); };
  constexpr std::uint64_t kNoToken = 0xcbf2'9ce4'8422'2325;  // the hash of an empty text
  const std::tuple<int, int, int, std::string> strangers[] = {
      {1, 5, 99, "rank 1 was started as one of 5 ranks, rank 0 as one of 3"},
      {1, -3, 99, "rank 1 was started as one of -3 ranks, rank 0 as one of 3"},
      {0, 3, 99, "two processes say that they are rank 0 of 3"},
      {3, 3, 99, "there is no rank 3 of 3"},
      {std::numeric_limits<int>::min(), 3, 99, "there is no rank -2147483648 of 3"},
      {1, 3, 0, "rank 1 cannot listen at port 0"},
      {1, 3, 65'536, "rank 1 cannot listen at port 65536"},
      {2, 4, 99, "rank 2 was started as one of 4 ranks, rank 0 as one of 3"},
      {2, 5, 99, "rank 2 was started as one of 5 ranks, rank 0 as one of 3"},
      {2, 6, 99, "rank 2 was started as one of 6 ranks, rank 0 as one of 3"}};
  std::promise<void> have_gone;
  const std::shared_future<void> gone = have_gone.get_future().share();
  std::vector<std::string> expected;
  const std::jthread visits([&] {
    for (int times = 0; times < 2; ++times)
      for (const auto& [rank, size, port, reason] : strangers)
        EXPECT_EQ(reason_to_leave(address, {.hello = {.token = kNoToken}, .rank = rank, .size = size, .port = port}),
                  reason);
    have_gone.set_value();
  });
  EXPECT_EQ(messages(options,
                     [&](const TcpOptions& mine) {
                       if (mine.rank != 0) gone.wait();
                       join(mine);
                     }),
            std::vector<std::string>(3));
  for (const auto& [rank, size, port, reason] : strangers)
    expected.push_back("sent a process away: " + reason + " (from 127.0.0.1)");
  expected.resize(8);
  EXPECT_EQ(told, expected) << "the first of them, each once";
}

// Rank 2 is played by hand. Rank 1 waits for it alone, and does not count others that know where it listens.
TEST(TcpMeeting, ARankThatWaitsLetsInOnlyThoseThatItWaitsFor) {
  std::vector<TcpOptions> options = tcp_options(3);
  options.resize(2);
  constexpr std::uint64_t kNoToken = 0xcbf2'9ce4'8422'2325;
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  const TcpAddress address = options[0].listener->address();
  const TcpListener own({"127.0.0.1", 0});
  const auto introduced = [&](const TcpAddress& to, int rank, int size) {
    Socket socket = connect_to(to, "a rank", deadline);
    const TcpIntroduction words{.hello = {.token = kNoToken}, .rank = rank, .size = size, .port = own.address().port};
    EXPECT_TRUE(write_all(socket, &words, sizeof(words), deadline));
    return socket;
  };
  std::atomic<bool> is_over = false;
  const std::jthread two([&] {
    const Socket first = introduced(address, 2, 3);
    TcpAnswer answer;
    EXPECT_TRUE(read_all(first, &answer, sizeof(answer), deadline));
    // A host, a port and an address for each rank.
    std::vector<std::array<std::byte, 64>> seats(3);
    ASSERT_EQ(answer.bytes, 3 * 64);
    EXPECT_TRUE(read_all(first, seats.data(), answer.bytes, deadline));
    std::int32_t port = 0;
    std::memcpy(&port, seats[1].data() + 8, sizeof(port));
    const TcpAddress one{"127.0.0.1", port};
    for (const auto& [rank, size] : {std::pair(0, 3), {1, 3}, {3, 3}, {-1, 3}, {2, 2}, {2, 4}}) {
      const Socket wrong = introduced(one, rank, size);
      char any = 0;
      EXPECT_FALSE(read_all(wrong, &any, 1, deadline)) << "rank " << rank << " of " << size << " is let in";
    }
    EXPECT_FALSE(is_over);
    const Socket right = introduced(one, 2, 3);
    std::this_thread::sleep_for(50ms);
  });
  EXPECT_EQ(messages(options,
                     [&](const TcpOptions& mine) {
                       const TcpPeers peers = meet(mine);
                       if (mine.rank == 1) is_over = true;
                       for (int r = 0; r < 3; ++r)
                         EXPECT_EQ(peers.sockets[static_cast<std::size_t>(r)].is_open(), r != mine.rank);
                     }),
            std::vector<std::string>(2));
}

TEST(TcpMeeting, TellsWhomItSentAwayWhereARankDoesNotCome) {
  std::vector<TcpOptions> options = tcp_options(3);
  options[0].timeout = 500ms;
  options[1].size = 2;
  options[2].rank = 1;
  options[2].size = 4;
  const std::vector<std::string> texts = messages(options, join);
  EXPECT_TRUE(texts[0].starts_with("ranks 1 and 2 of 3 did not come to ")) << texts[0];
  for (const std::size_t r : {1, 2}) {
    EXPECT_EQ(texts[r], concat("rank 1 was started as one of ", options[r].size, " ranks, rank 0 as one of 3"));
    EXPECT_TRUE(has(texts[0], "; was sent away: " + texts[r] + " (from 127.0.0.1)")) << texts[0];
  }
}

TEST(TcpMeeting, RefusesAPortThatIsTakenAHostThatIsNoneAndRanksThatAreNone) {
  const std::vector<TcpOptions> options = tcp_options(2);
  TcpOptions taken = options[0];
  taken.listener.reset();
  EXPECT_EQ(error_of([&] { join(taken); }), "cannot listen at " + taken.address + ": Address already in use");
  TcpOptions lost = options[1];
  lost.address = "no-such-host.invalid:4000";
  EXPECT_TRUE(has(error_of([&] { join(lost); }), "cannot find the host of no-such-host.invalid:4000"));
  EXPECT_TRUE(has(error_of([&] { join({.rank = 2, .size = 2}); }), "there is no rank 2 of 2"));
  EXPECT_TRUE(has(error_of([&] { join({.rank = 0, .size = 0}); }), "needs one at least"));
}

}  // namespace
}  // namespace keel
