// How ranks find each other by an address, and what is said when they do not.

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "keel/dist/comm/tcp_meeting.h"
#include "tests/dist/comm/tcp/tcp_ranks.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace keel::testing;
using namespace std::chrono_literals;

void join(const TcpOptions& options) { make_tcp_communicator(options)->barrier(); }

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(TcpAddress, IsHostAndPort) {
  EXPECT_EQ(to_string(TcpAddress::parse("node7:4000")), "node7:4000");
  EXPECT_EQ(TcpAddress::parse("[::1]:80").host, "::1");
  EXPECT_EQ(to_string(TcpAddress::parse("[::1]:80")), "[::1]:80");
  for (const char* text : {"", "node7", "node7:", ":4000", "node7:x", "node7:70000", "node7:-1", "::1:80", "a:1 "})
    EXPECT_TRUE(has(error_of([&] { TcpAddress::parse(text); }), "an address is written HOST:PORT")) << text;
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
}

TEST(TcpMeeting, TellsAllWhichRankDidNotCome) {
  std::vector<TcpOptions> options = tcp_options(4);
  for (TcpOptions& one : options) one.timeout = 500ms;
  const std::string address = options[0].address;
  options.erase(options.begin() + 2);
  for (const std::string& text : messages(options, join))
    EXPECT_EQ(text, "rank 2 of 4 did not come to " + address + " within 500 ms");
  options = tcp_options(4);
  options[0].timeout = 100ms;
  options.resize(1);
  EXPECT_TRUE(has(messages(options, join)[0], "ranks 1, 2 and 3 of 4 did not come"));
}

TEST(TcpMeeting, TellsThatRankZeroDoesNotAnswer) {
  std::vector<TcpOptions> options = tcp_options(2);
  options.erase(options.begin());  // and nobody listens
  options[0].timeout = 100ms;
  const std::string said = messages(options, join)[0];
  EXPECT_TRUE(has(said, "rank 0 does not answer at 127.0.0.1:")) << said;
  EXPECT_TRUE(has(said, "refused")) << said;
}

TEST(TcpMeeting, TellsThatARankDiedBeforeTheOthersCame) {
  std::vector<TcpOptions> options = tcp_options(4);
  const TcpAddress address = options[0].listener->address();
  options.resize(1);
  const std::jthread one([&] {
    const Socket socket = connect_to(address, "rank 0", std::chrono::steady_clock::now() + 20s);
    // What rank 1 of 4 says first, without a token.
    const std::uint64_t said[] = {0x1'6c65'656b, 0xcbf2'9ce4'8422'2325, 1 | std::uint64_t{4} << 32, 1, 0};
    socket.send_some(said, sizeof(said));
    std::this_thread::sleep_for(20ms);
  });
  EXPECT_EQ(messages(options, join)[0], "rank 1 is gone before all ranks had come");
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

TEST(TcpMeeting, RefusesRanksThatContradictEachOther) {
  std::vector<TcpOptions> options = tcp_options(2);
  options[1].size = 3;
  for (const std::string& text : messages(options, join))
    EXPECT_EQ(text, "rank 1 was started as one of 3 ranks, rank 0 as one of 2");
  options = tcp_options(3);
  options[2].rank = 1;
  for (const std::string& text : messages(options, join))
    EXPECT_EQ(text, "two processes say that they are rank 1 of 3");
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
