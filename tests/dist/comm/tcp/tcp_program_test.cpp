// What a program keeps of its groups and tells the others: all of them in one thread.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "keel/dist/comm/tcp_program.h"
#include "tests/dist/comm/messages.h"
#include "tests/dist/comm/tcp/system_calls.h"

namespace keel {
namespace {

using namespace keel::testing;

// What rank 0 and rank 1 of two have.
std::array<TcpPeers, 2> connected_pair() {
  std::array<TcpPeers, 2> pair;
  std::array<Socket, 2> ends = two_ends();
  for (const std::size_t rank : {0, 1}) {
    pair[rank] = {std::vector<Socket>(2), {0, 0}};
    pair[rank].sockets[1 - rank] = std::move(ends[rank]);
  }
  return pair;
}

// Each of n programs, connected with all others.
std::vector<TcpPeers> connected(std::size_t n) {
  std::vector<TcpPeers> all(n);
  for (std::size_t a = 0; a < n; ++a) all[a] = {std::vector<Socket>(n), std::vector<std::uint64_t>(n)};
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = 0; b < a; ++b) {
      std::array<Socket, 2> ends = two_ends();
      all[a].sockets[b] = std::move(ends[0]);
      all[b].sockets[a] = std::move(ends[1]);
    }
  return all;
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

// Each way to end speaks behind what was sent before, of which the system has not taken all.
TEST(TcpProgram, SaysThatItGoesBehindWhatItHasSent) {
  for (const bool is_goodbye : {true, false}) {
    std::array<TcpPeers, 2> pair = connected_pair();
    auto goes = std::make_unique<TcpProgram>(0, std::move(pair[0])),
         hears = std::make_unique<TcpProgram>(1, std::move(pair[1]));
    const Bytes sent = numbered(2'000'000);
    Bytes arrived(sent.size());
    const auto frame = goes->send(1, 7, 1, sent.data(), sent.size());
    EXPECT_FALSE(frame->is_finished());
    const auto incoming = hears->receive(0, 7, 1, arrived.data(), arrived.size());
    std::jthread ends;
    if (is_goodbye) ends = std::jthread([&] { goes.reset(); });
    else goes->leave(7, {0, 1});
    while (!hears->departure(7, 0)) {
      if (!is_goodbye) goes->look();
      hears->idle(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(incoming->is_finished());
    EXPECT_TRUE(arrived == sent);
    if (is_goodbye) hears.reset();
    else end_together(std::move(goes), std::move(hears));
  }
}

TEST(TcpProgram, TellsOfAFailureBeforeAllThatHasNotBegun) {
  std::array<TcpPeers, 2> pair = connected_pair();
  TcpProgram fails(1, std::move(pair[1])), hears(0, std::move(pair[0]));
  const Bytes sent = numbered(2'000'000);
  Bytes arrived(sent.size());
  fails.send(0, 7, 1, sent.data(), sent.size());
  fails.send(0, 7, 2, sent.data(), sent.size());
  const auto first = hears.receive(1, 7, 1, arrived.data(), arrived.size()),
             second = hears.receive(1, 7, 2, arrived.data(), arrived.size());
  fails.fail(0, "out of paper");
  while (hears.failure(0).empty()) {
    fails.look();
    hears.look();
  }
  EXPECT_TRUE(first->is_finished());
  EXPECT_FALSE(second->is_finished());
}

// In peace, or another one may lose what was sent last.
TEST(TcpProgram, WaitsForTheOthersToGo) {
  std::array<TcpPeers, 2> pair = connected_pair();
  auto one = std::make_unique<TcpProgram>(0, std::move(pair[0])),
       other = std::make_unique<TcpProgram>(1, std::move(pair[1]));
  std::atomic<bool> has_gone = false;
  const std::jthread ends([&] {
    one.reset();
    has_gone = true;
  });
  while (!other->departure(7, 0)) other->idle(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(has_gone);
  other.reset();
}

// Whatever has arrived of a message before somebody asks for it.
TEST(TcpProgram, BringsWhatHasArrivedBefore) {
  std::array<TcpPeers, 2> pair = connected_pair();
  auto one = std::make_unique<TcpProgram>(0, std::move(pair[0])),
       other = std::make_unique<TcpProgram>(1, std::move(pair[1]));
  for (const std::size_t bytes : {0, 1, 2, 3, 100'000}) {
    const Bytes sent = numbered(bytes, 3);
    Bytes arrived(bytes + 1), shorter(bytes + 1);
    for (const std::uint64_t tag : {1, 2}) one->send(1, 7, tag, sent.data(), bytes);
    for (int i = 0; i < 10; ++i) {
      one->look();
      other->look();
    }
    EXPECT_TRUE(other->receive(0, 7, 1, arrived.data(), bytes)->is_finished());
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), arrived.begin())) << bytes;
    EXPECT_EQ(arrived.back(), 0);
    other->receive(0, 7, 2, shorter.data(), bytes + 1);
    EXPECT_TRUE(shorter == Bytes(bytes + 1)) << "it is another message than is asked for";
  }
  end_together(std::move(one), std::move(other));
}

TEST(TcpProgram, TellsOfAFailureTheRanksOfItsFamilyAlone) {
  std::vector<TcpPeers> all = connected(4);
  std::vector<std::unique_ptr<TcpProgram>> programs;
  for (std::size_t r = 0; r < 4; ++r)
    programs.push_back(std::make_unique<TcpProgram>(static_cast<int>(r), std::move(all[r])));
  programs[1]->join_family(5, {1, 3});
  programs[1]->fail(5, "out of paper");
  programs[2]->fail(6, "out of ink");  // a family that it has not joined
  programs[2]->fail(TcpProgram::kNoFamily, "out of luck");
  for (const auto& each : programs) each->look();
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(programs[r]->failure(5), r == 1 || r == 3 ? "out of paper" : "") << r;
    EXPECT_EQ(programs[r]->failure(6), "out of ink") << r;
    EXPECT_EQ(programs[r]->failure(TcpProgram::kNoFamily), "");
  }
  std::vector<std::jthread> ends;
  for (auto& each : programs) ends.emplace_back([&each] { each.reset(); });
}

TEST(TcpProgram, TellsAThousandBytesOfAReason) {
  std::array<TcpPeers, 2> pair = connected_pair();
  TcpProgram fails(1, std::move(pair[1])), hears(0, std::move(pair[0]));
  for (const std::size_t length : {999, 1'000, 1'001, 5'000}) {
    std::string reason(length, 'x');
    reason.front() = 'a';
    fails.fail(length, reason);
    hears.look();
    EXPECT_EQ(hears.failure(length), length <= 1'000 ? reason : reason.substr(0, 1'000) + " ...");
  }
}

// A family's ranks are those of its first group, for as long as this rank has any group of it.
TEST(TcpProgram, MissesARankThatIsGoneInTheFamiliesThatItIsIn) {
  constexpr std::uint64_t kTwice = 5, kOnce = 6, kLeft = 7, kOthers = 8;
  std::vector<TcpPeers> all = connected(3);
  auto owned = std::make_unique<TcpProgram>(0, std::move(all[0])),
       stays = std::make_unique<TcpProgram>(1, std::move(all[1]));
  TcpProgram& program = *owned;
  for (const std::uint64_t family : {kTwice, kOnce, kLeft}) program.join_family(family, {0, 1, 2});
  program.join_family(kOthers, {0, 1});
  program.join_family(kTwice, {0});
  for (const std::uint64_t family : {kTwice, kLeft}) program.leave_family(family);
  program.look();
  EXPECT_FALSE(program.is_gone(0));
  EXPECT_FALSE(program.is_gone(2));
  all[2].sockets[0].close();
  program.look();
  EXPECT_TRUE(program.is_gone(2));
  EXPECT_FALSE(program.is_gone(1));
  EXPECT_FALSE(program.is_gone(0));
  for (const std::uint64_t family : {kTwice, kOnce, kLeft, kOthers, TcpProgram::kNoFamily})
    EXPECT_EQ(program.failure(family), family == kTwice || family == kOnce ? "rank 2 is gone" : "") << family;
  program.join_family(kLeft, {0, 2});
  EXPECT_EQ(program.failure(kLeft), "rank 2 is gone") << "it is so when the family is joined";
  program.join_family(TcpProgram::kNoFamily, {0, 2});
  EXPECT_EQ(program.failure(TcpProgram::kNoFamily), "");
  all.clear();
  end_together(std::move(owned), std::move(stays));
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
