// A connection's frames: two ends in one thread.

#include "keel/dist/comm/tcp_connection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/dist/comm/messages.h"
#include "tests/dist/comm/tcp/system_calls.h"

namespace keel {
namespace {

using namespace keel::testing;

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
  std::array<Socket, 2> ends = two_ends();
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
    std::array<Socket, 2> ends = two_ends();
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
  std::array<Socket, 2> ends = two_ends();
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
    std::array<Socket, 2> ends = two_ends();
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

// Whatever the system takes or brings at a time.
TEST(TcpConnection, TakesFramesInPiecesOfAnySize) {
  std::string bytes;
  std::vector<std::string> expected;
  for (const std::size_t length : {0, 1, 5, 300, 0, 2}) {
    const TcpHeader header{.kind = TcpHeader::failed, .bytes = length};
    expected.emplace_back(length, static_cast<char>('a' + expected.size()));
    bytes += std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + expected.back();
  }
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, sizeof(TcpHeader), std::size_t{41}, bytes.size()}) {
    std::array<Socket, 2> ends = two_ends();
    TcpConnection connection(1, std::move(ends[0]));
    Hears listener;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      send_all(ends[1], bytes.data() + at, std::min(piece, bytes.size() - at));
      EXPECT_TRUE(connection.read(listener));
    }
    EXPECT_EQ(listener.texts, expected) << "in pieces of " << piece;
  }
}

TEST(TcpConnection, KnowsItsKindsOfFrames) {
  for (const std::uint32_t kind : {TcpHeader::message - 1U, TcpHeader::message + 0U, TcpHeader::failed + 0U,
                                   TcpHeader::left + 0U, TcpHeader::goodbye + 0U, TcpHeader::goodbye + 1U, 0U}) {
    std::array<Socket, 2> ends = two_ends();
    TcpConnection connection(1, std::move(ends[0]));
    Hears listener;
    const TcpHeader header{.kind = kind};
    send_all(ends[1], &header, sizeof(header));
    EXPECT_TRUE(connection.read(listener));
    const bool is_known = kind >= TcpHeader::message && kind - TcpHeader::message < 4;
    EXPECT_EQ(connection.is_open(), is_known) << kind;
    EXPECT_EQ(listener.texts.size(), is_known ? 1u : 0u);
  }
}

TEST(TcpConnection, SaysThatSomethingWasThereWhereItGoesStraightToItsPlace) {
  constexpr std::size_t kBytes = 60'000;
  class Takes : public TcpConnection::Listener {
   public:
    std::shared_ptr<TcpIncoming> place_for(int, const TcpHeader&) override {
      if (has_memory) incoming->memory = reinterpret_cast<std::byte*>(arrived.data());
      return incoming;
    }
    void hear(int, const TcpHeader&, const std::string&) override { ++heard; }
    bool has_memory = true;
    Bytes arrived = Bytes(kBytes);
    std::shared_ptr<TcpIncoming> incoming = std::make_shared<TcpIncoming>();
    int heard = 0;
  };
  for (const bool has_memory : {true, false}) {  // nobody wants it any more
    Takes listener;
    listener.has_memory = has_memory;
    std::array<Socket, 2> ends = two_ends();
    TcpConnection connection(1, std::move(ends[0]));
    const Bytes sent = numbered(kBytes);
    const TcpHeader header{.bytes = kBytes};
    send_all(ends[1], &header, sizeof(header));
    EXPECT_TRUE(connection.read(listener));
    for (std::size_t at = 0; at < kBytes; at += 20'000) {
      EXPECT_FALSE(connection.read(listener));
      send_all(ends[1], sent.data() + at, 20'000);
      EXPECT_TRUE(connection.read(listener));
    }
    EXPECT_TRUE(connection.is_open());
    EXPECT_EQ(listener.heard, 1);
    EXPECT_TRUE(listener.arrived == (has_memory ? sent : Bytes(kBytes)));
  }
}

std::shared_ptr<TcpOutgoing> frame_of(const std::string& text, std::uint64_t tag) {
  auto frame = std::make_shared<TcpOutgoing>();
  frame->header = {.tag = tag, .bytes = text.size()};
  frame->data = reinterpret_cast<const std::byte*>(text.data());
  return frame;
}
std::string bytes_of(const TcpOutgoing& frame, const std::string& text) {
  return std::string(reinterpret_cast<const char*>(&frame.header), sizeof(TcpHeader)) + text;
}
std::string all_that_is_there(const Socket& socket) {
  std::string all, some(100'000, '\0');
  for (std::ptrdiff_t received = 1; received > 0;) {
    received = socket.receive_some(some.data(), some.size());
    if (received > 0) all.append(some, 0, static_cast<std::size_t>(received));
  }
  return all;
}

// So many bytes of the first of them have gone already; more frames than go at once follow it.
TEST(TcpConnection, SendsTheRestOfAFrameAndThenTheOthers) {
  const std::string text = "paper", one = "x";
  constexpr std::size_t kTotal = sizeof(TcpHeader) + 5;
  for (const std::size_t sent :
       {std::size_t{0}, std::size_t{1}, sizeof(TcpHeader) - 1, sizeof(TcpHeader), sizeof(TcpHeader) + 1, kTotal - 1})
    for (const std::size_t others : {0, 1, 15, 16, 17, 40}) {
      std::array<Socket, 2> ends = two_ends();
      TcpConnection connection(1, std::move(ends[0]));
      const auto first = frame_of(text, 77);
      first->sent = sent;
      connection.push(first);
      std::string expected = bytes_of(*first, text).substr(sent);
      for (std::size_t i = 0; i < others; ++i) {
        const std::string& next = i % 3 == 0 ? one : i % 3 == 1 ? text : std::string();
        const auto frame = frame_of(i % 3 == 0 ? one : text, i);
        if (i % 3 == 2) frame->header.bytes = 0;
        connection.push(frame);
        expected += bytes_of(*frame, next);
      }
      connection.flush();
      EXPECT_FALSE(connection.wants_to_send());
      EXPECT_TRUE(first->is_finished());
      EXPECT_EQ(all_that_is_there(ends[1]), expected) << sent << " bytes, " << others << " others";
    }
}

TEST(TcpConnection, PutsAFrameBeforeAllThatHaveNotBegun) {
  const std::string a = "first", b = "second", c = "failure";
  for (const std::size_t sent : {std::size_t{0}, std::size_t{1}, std::size_t{2}, sizeof(TcpHeader) + 2})
    for (const std::size_t before : {0, 1, 2}) {
      std::array<Socket, 2> ends = two_ends();
      TcpConnection connection(1, std::move(ends[0]));
      const auto one = frame_of(a, 1), two = frame_of(b, 2), urgent = frame_of(c, 3);
      one->sent = sent;
      if (before > 0) connection.push(one);
      if (before > 1) connection.push(two);
      connection.push_first(urgent);
      connection.flush();
      const std::string rest = before > 0 ? bytes_of(*one, a).substr(sent) : "";
      const std::string second = before > 1 ? bytes_of(*two, b) : "", reason = bytes_of(*urgent, c);
      EXPECT_EQ(all_that_is_there(ends[1]), sent > 0 ? rest + reason + second : reason + rest + second);
    }
}

// Its memory goes, too.
TEST(TcpConnection, SendsAllOfAFrameThatHasBegunWhenItIsGivenUp) {
  for (const std::size_t length : {0, 1, 2})
    for (const std::size_t sent : {0, 1, 2}) {
      std::array<Socket, 2> ends = two_ends();
      TcpConnection connection(1, std::move(ends[0]));
      std::string text(length, 'x');
      const auto frame = frame_of(text, 1), other = frame_of(text, 2);
      frame->sent = sent;
      connection.push(frame);
      const std::string expected = bytes_of(*frame, text).substr(sent);
      connection.give_up(other);
      connection.give_up(frame);
      EXPECT_EQ(frame->own.size(), sent > 0 ? length : 0);
      std::fill(text.begin(), text.end(), 'y');
      connection.flush();
      EXPECT_EQ(all_that_is_there(ends[1]), sent > 0 ? expected : "") << length << " bytes, " << sent << " sent";
    }
}

}  // namespace
}  // namespace keel
