// What a program keeps of its groups, and a connection of a frame: two ends in one thread.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "keel/dist/comm/tcp_program.h"
#include "keel/runtime/error.h"
#include "tests/dist/comm/messages.h"

namespace keel {
namespace {

using namespace keel::testing;

std::array<Socket, 2> connected_sockets() {
  std::array<int, 2> ends = {};
  KEEL_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0, "no sockets");
  return {Socket(ends[0]), Socket(ends[1])};
}
// What rank 0 and rank 1 of two have.
std::array<TcpPeers, 2> connected_pair() {
  std::array<TcpPeers, 2> pair;
  std::array<Socket, 2> ends = connected_sockets();
  for (const std::size_t rank : {0, 1}) {
    pair[rank] = {std::vector<Socket>(2), {0, 0}};
    pair[rank].sockets[1 - rank] = std::move(ends[rank]);
  }
  return pair;
}

// They wait for each other.
void end_together(std::unique_ptr<TcpProgram> one, std::unique_ptr<TcpProgram> other) {
  const std::jthread ends([&] { other.reset(); });
  one.reset();
}

// It says who has left while somebody is in the group; then nothing is kept of it.
TEST(TcpProgram, ForgetsAGroupThatAllHaveLeft) {
  for (const bool is_first_to_leave : {true, false}) {
    std::array<TcpPeers, 2> pair = connected_pair();
    auto one = std::make_unique<TcpProgram>(0, std::move(pair[0])),
         other = std::make_unique<TcpProgram>(1, std::move(pair[1]));
    constexpr std::uint64_t kGroup = 5;
    const auto look = [&] {
      one->look();
      other->look();
    };
    TcpProgram &first = is_first_to_leave ? *one : *other, &second = is_first_to_leave ? *other : *one;
    first.leave(kGroup, {0, 1});
    look();
    EXPECT_TRUE(second.departure(kGroup, first.rank()));
    EXPECT_FALSE(second.departure(kGroup, first.rank())->abruptly);
    EXPECT_FALSE(second.departure(kGroup + 1, first.rank()));
    EXPECT_TRUE(second.departure(TcpProgram::internal(kGroup), first.rank())) << "for messages of its splits, too";
    EXPECT_FALSE(second.departure(TcpProgram::internal(kGroup + 1), first.rank()));
    for (const std::uint64_t group : {kGroup, TcpProgram::internal(kGroup)}) {
      EXPECT_FALSE(first.place_for(second.rank(), {.group = group})->has_own) << "what comes too late is kept";
      EXPECT_TRUE(second.place_for(first.rank(), {.group = group})->has_own);
    }
    EXPECT_FALSE(first.departure(kGroup, second.rank()));
    second.leave(kGroup, {0, 1});
    look();
    EXPECT_FALSE(second.departure(kGroup, first.rank()));
    EXPECT_FALSE(first.departure(kGroup, second.rank()));
    end_together(std::move(one), std::move(other));
  }
}

TEST(TcpProgram, SaysThatItLeavesAbruptlyOnceItHasFailed) {
  std::array<TcpPeers, 2> pair = connected_pair();
  TcpProgram fails(1, std::move(pair[1])), hears(0, std::move(pair[0]));
  fails.fail(0, "out of paper");
  fails.leave(7, {0, 1});
  hears.look();
  ASSERT_TRUE(hears.departure(7, 1));
  EXPECT_TRUE(hears.departure(7, 1)->abruptly);
}

TEST(TcpProgram, SaysInItsGoodbyeWhetherItHasFailed) {
  for (const bool fails : {false, true}) {
    std::array<TcpPeers, 2> pair = connected_pair();
    auto hears = std::make_unique<TcpProgram>(0, std::move(pair[0])),
         goes = std::make_unique<TcpProgram>(1, std::move(pair[1]));
    if (fails) goes->fail(0, "out of paper");
    const std::jthread ends([&] { goes.reset(); });
    while (!hears->departure(7, 1)) hears->idle(std::chrono::milliseconds(1));
    EXPECT_EQ(hears->departure(7, 1)->abruptly, fails);
    hears.reset();
  }
}

TEST(TcpProgram, KeepsWhatHasArrivedForOtherGroupsThanOneThatItLeaves) {
  std::array<TcpPeers, 2> pair = connected_pair();
  auto one = std::make_unique<TcpProgram>(0, std::move(pair[0])),
       other = std::make_unique<TcpProgram>(1, std::move(pair[1]));
  constexpr std::uint64_t kLeft = 5;
  const std::uint64_t groups[] = {kLeft - 1, kLeft, kLeft + 1};
  std::vector<std::shared_ptr<TcpIncoming>> arrived;
  const auto for_each = [&](const auto& f) {
    for (const std::uint64_t group : groups)
      for (const std::uint64_t id : {group, TcpProgram::internal(group)})
        for (const std::uint64_t tag : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) f(group, id, tag);
  };
  for_each([&](std::uint64_t, std::uint64_t id, std::uint64_t tag) {
    arrived.push_back(other->place_for(0, {.group = id, .tag = tag}));
  });
  other->leave(kLeft, {0, 1});
  auto next = arrived.begin();
  for_each([&](std::uint64_t group, std::uint64_t id, std::uint64_t tag) {
    EXPECT_EQ(other->receive(0, id, tag, nullptr, 0) == *next++, group != kLeft) << "group " << id << ", tag " << tag;
  });
  end_together(std::move(one), std::move(other));
}

// Hears texts, and takes messages to where the test looks.
class Hears : public TcpConnection::Listener {
 public:
  std::shared_ptr<TcpIncoming> place_for(int, const TcpHeader&) override { return std::make_shared<TcpIncoming>(); }
  void hear(int, const TcpHeader&, const std::string& text) override { texts.push_back(text); }
  std::vector<std::string> texts;
};

void send_all(const Socket& socket, const void* data, std::size_t bytes) {
  ASSERT_EQ(socket.send_some(data, bytes), static_cast<std::ptrdiff_t>(bytes));
}

TEST(TcpConnection, SaysWhetherAnythingWasThere) {
  std::array<Socket, 2> ends = connected_sockets();
  TcpConnection connection(1, std::move(ends[0]));
  Hears listener;
  EXPECT_FALSE(connection.read(listener));
  const TcpHeader header{.kind = TcpHeader::failed, .bytes = 5};
  send_all(ends[1], &header, sizeof(header));
  EXPECT_TRUE(connection.read(listener));
  EXPECT_FALSE(connection.read(listener));
  EXPECT_TRUE(listener.texts.empty());
  send_all(ends[1], "paper", 5);
  EXPECT_TRUE(connection.read(listener));
  EXPECT_FALSE(connection.read(listener));
  EXPECT_EQ(listener.texts, std::vector<std::string>{"paper"});
  ends[1].close();
  EXPECT_TRUE(connection.read(listener)) << "its end";
  EXPECT_FALSE(connection.is_open());
}

TEST(TcpConnection, TakesTextsOf64KiBAndNoLongerOnes) {
  for (const std::size_t bytes : {std::size_t{65'536}, std::size_t{65'537}}) {
    std::array<Socket, 2> ends = connected_sockets();
    TcpConnection connection(1, std::move(ends[0]));
    Hears listener;
    const TcpHeader header{.kind = TcpHeader::failed, .bytes = bytes};
    send_all(ends[1], &header, sizeof(header));
    connection.read(listener);
    ASSERT_EQ(connection.is_open(), bytes == 65'536);
    if (!connection.is_open()) continue;
    const std::string text(bytes, 'x');
    for (std::size_t sent = 0; sent < bytes; sent += 4'096) {
      send_all(ends[1], text.data() + sent, 4'096);
      connection.read(listener);
    }
    EXPECT_EQ(listener.texts, std::vector<std::string>{text});
  }
}

// Only what has arrived takes memory.
TEST(TcpConnection, ANumberInAHeaderCostsNothing) {
  class Keeps : public TcpConnection::Listener {
   public:
    std::shared_ptr<TcpIncoming> place_for(int, const TcpHeader&) override {
      incoming->has_own = true;
      return incoming;
    }
    void hear(int, const TcpHeader&, const std::string&) override { ++heard; }
    std::shared_ptr<TcpIncoming> incoming = std::make_shared<TcpIncoming>();
    int heard = 0;
  } listener;
  std::array<Socket, 2> ends = connected_sockets();
  TcpConnection connection(1, std::move(ends[0]));
  const TcpHeader header{.bytes = std::uint64_t{1} << 50};
  ASSERT_EQ(ends[1].send_some(&header, sizeof(header)), static_cast<std::ptrdiff_t>(sizeof(header)));
  const Bytes all = numbered(3'000'000);
  for (std::size_t sent = 0; sent < all.size();) {
    const std::ptrdiff_t some = ends[1].send_some(all.data() + sent, all.size() - sent);
    ASSERT_GE(some, 0);
    sent += static_cast<std::size_t>(some);
    connection.read(listener);
    ASSERT_TRUE(connection.is_open());
  }
  while (connection.read(listener)) continue;
  const TcpIncoming& incoming = *listener.incoming;
  ASSERT_EQ(incoming.received, all.size());
  EXPECT_TRUE(std::equal(all.begin(), all.end(), reinterpret_cast<const unsigned char*>(incoming.own.get())));
  EXPECT_LE(incoming.own_bytes, 4 * all.size());
  EXPECT_EQ(listener.heard, 0);
}

// Half of the message has gone when its sender wants its memory back.
TEST(TcpConnection, CopiesTheRestOfAMessageThatIsGivenUpUnlessSomebodyKeepsIt) {
  for (const bool is_kept : {false, true}) {
    std::array<Socket, 2> ends = connected_sockets();
    TcpConnection connection(1, std::move(ends[0]));
    Bytes memory = numbered(800'000);
    const auto frame = std::make_shared<TcpOutgoing>(), unsent = std::make_shared<TcpOutgoing>();
    frame->header.bytes = unsent->header.bytes = memory.size();
    frame->data = unsent->data = reinterpret_cast<const std::byte*>(memory.data());
    if (is_kept) frame->owner = std::make_shared<int>();
    connection.push(frame);
    connection.push(unsent);
    connection.flush();
    ASSERT_GT(frame->sent, 0u);
    ASSERT_FALSE(frame->is_finished());
    connection.give_up(unsent);
    connection.give_up(frame);
    EXPECT_EQ(frame->own.size(), is_kept ? 0 : memory.size());
    EXPECT_TRUE(unsent->own.empty());
    if (!is_kept) std::fill(memory.begin(), memory.end(), static_cast<unsigned char>(255));
    Bytes arrived, some(100'000);
    while (connection.wants_to_send() || arrived.size() < frame->total()) {
      const std::ptrdiff_t received = ends[1].receive_some(some.data(), some.size());
      ASSERT_GE(received, 0);
      arrived.insert(arrived.end(), some.begin(), some.begin() + received);
      connection.flush();
    }
    ASSERT_EQ(arrived.size(), frame->total()) << "what had not begun is not sent";
    arrived.erase(arrived.begin(), arrived.begin() + sizeof(TcpHeader));
    EXPECT_TRUE(arrived == numbered(800'000));
  }
}

TEST(TcpProgram, HearsAFailureThatGivesNoReason) {
  std::array<TcpPeers, 2> pair = connected_pair();
  TcpProgram fails(1, std::move(pair[1])), hears(0, std::move(pair[0]));
  fails.fail(0, "");
  hears.look();
  for (const TcpProgram* program : {&fails, &hears}) EXPECT_EQ(program->failure(0), "rank 1 failed and gave no reason");
}

}  // namespace
}  // namespace keel
