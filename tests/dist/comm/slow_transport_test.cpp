#include "keel/dist/comm/slow_transport.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/regroup.h"
#include "keel/dist/comm/thread_transport.h"
#include "tests/dist/comm/forwarding_transport.h"
#include "tests/dist/comm/ranks.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace testing;
using Clock = std::chrono::steady_clock;

// The time of an all-reduce of so many numbers, whose sum is checked.
double seconds_of(Communicator& ranks, std::int64_t count) {
  const Context context = testing::context(1);
  const Tensor x =
      from_values(context, std::vector<float>(static_cast<std::size_t>(count), 1.0F + ranks.rank()), {count});
  const Clock::time_point began = Clock::now();
  ranks.all_reduce(x).wait();
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  for (const double value : doubles(x)) EXPECT_EQ(value, ranks.size() * (ranks.size() + 1) / 2);
  return seconds;
}

// The signature and each step of the algorithm take a delay; a rank's bytes leave it one after the other.
TEST(EmulatedLink, TakesTheDelayOfEachStepAndTheTimeOfEveryByte) {
  const Link link{.delay = std::chrono::milliseconds(3), .bandwidth = 4e6};
  constexpr std::int64_t kCount = 12'000;  // 48,000 bytes: 12 ms to send once
  for (const int n : {2, 3, 4}) {
    KEEL_NEEDS_RANKS(n);
    for (const Algorithm* const algorithm : algorithms())
      on_ranks(n, [&](Communicator& ranks) {
        const auto slow = ranks.regroup({.algorithm = std::string(algorithm->name), .network = {.link = link}});
        const Schedule schedule = algorithm->all_reduce({.rank = ranks.rank(), .size = n, .count = kCount});
        const double bytes = static_cast<double>(schedule.elements_sent()) * 4;
        EXPECT_GE(seconds_of(*slow, kCount), 0.003 + bytes / 4e6) << algorithm->name << ", " << n << " ranks";
      });
  }
}

TEST(EmulatedLink, WithoutABandwidthTakesTheDelaysAlone) {
  const int n = 2;
  KEEL_NEEDS_RANKS(n);
  on_ranks(n, [&](Communicator& ranks) {
    const auto slow = ranks.regroup({.network = {.link = {.delay = std::chrono::milliseconds(3), .bandwidth = 0}}});
    EXPECT_GE(seconds_of(*slow, 12'000), 0.003);
  });
}

TEST(EmulatedLink, GivesTheSameResultsToGroupsThatAreSplitOff) {
  const Link link{.delay = std::chrono::microseconds(100), .bandwidth = 1e8};
  for (const int n : {2, 3, 4}) {
    KEEL_NEEDS_RANKS(n);
    on_ranks(n, [&](Communicator& ranks) {
      const auto slow = ranks.regroup({.network = {.link = link}});
      const auto pairs = slow->split(ranks.rank() / 2, ranks.rank());
      seconds_of(*slow, 1000);
      seconds_of(*pairs, 10);
      seconds_of(ranks, 10);
      const Link far{.delay = std::chrono::microseconds(300), .bandwidth = 1e7};
      const auto apart = ranks.regroup({.network = {.link = link, .outer = far, .group = 2}});
      const auto others = apart->split(ranks.rank() % 2, -ranks.rank());
      seconds_of(*apart, 1000);
      seconds_of(*others, 1000);
    });
  }
}

// Four ranks, two and two, whose clock stands still.
class EmulatedNetwork : public ::testing::Test {
 protected:
  using Ends = std::vector<std::unique_ptr<Transport>>;

  // What each rank has of a part of all.
  Ends split(int (*color)(int), int (*key)(int)) {
    Ends made(4);
    std::vector<std::thread> threads;
    for (int r = 0; r < 4; ++r)
      threads.emplace_back([&, r] { made[static_cast<std::size_t>(r)] = end(r).split(color(r), key(r)); });
    for (std::thread& thread : threads) thread.join();
    return made;
  }
  Transport& end(int rank) { return *ends_[static_cast<std::size_t>(rank)]; }

  // A message of 100 bytes arrives after so long, and not a microsecond before.
  void expect_arrival(Transport& from, Transport& to, std::int64_t microseconds) {
    const std::array<char, 100> sent = {1};
    std::array<char, 100> got = {};
    const auto sending = from.send(to.rank(), 7, sent.data(), sent.size());
    const auto receiving = to.receive(from.rank(), 7, got.data(), got.size());
    now_ += microseconds - 1;
    EXPECT_FALSE(sending->has_finished());
    EXPECT_FALSE(receiving->has_finished());
    now_ += 1;
    EXPECT_TRUE(sending->has_finished());
    EXPECT_TRUE(receiving->has_finished());
    EXPECT_EQ(got, sent);
  }

  static constexpr std::int64_t kInside = 100 + 10, kAcross = 1000 + 500;

  std::atomic<std::int64_t> now_ = 0;
  Ends ends_ = [this] {
    const Network network{.link = {.delay = std::chrono::microseconds(10), .bandwidth = 1e6},
                          .outer = {.delay = std::chrono::microseconds(500), .bandwidth = 1e5},
                          .group = 2};
    const LinkClock clock = [this] { return Clock::time_point(std::chrono::microseconds(now_)); };
    const ThreadHub hub(4);
    Ends ends;
    for (int r = 0; r < 4; ++r) ends.push_back(make_slow_transport(hub.connect(r), network, clock));
    return ends;
  }();
};

TEST_F(EmulatedNetwork, HasOneLinkInsideGroupsAndAnotherBetweenThem) {
  for (int from = 0; from < 4; ++from)
    for (int to = 0; to < 4; ++to)
      if (from != to) expect_arrival(end(from), end(to), from / 2 == to / 2 ? kInside : kAcross);
}

TEST_F(EmulatedNetwork, LetsMessagesOfALinkWaitForThoseBeforeThemAndForNoOthers) {
  const std::array<char, 100> sent = {};
  std::array<char, 100> got = {};
  char close_got = 0, second_got = 0;
  const auto first = end(0).send(2, 1, sent.data(), sent.size());
  const auto receiving = end(2).receive(0, 1, got.data(), got.size());
  const auto close = end(0).send(1, 1, sent.data(), 1);
  const auto close_receiving = end(1).receive(0, 1, &close_got, 1);
  const auto second = end(0).send(3, 1, sent.data(), 1);
  const auto second_receiving = end(3).receive(0, 1, &second_got, 1);
  now_ = 1 + 10;
  EXPECT_TRUE(close->has_finished());
  EXPECT_FALSE(first->has_finished());
  now_ = kAcross;
  EXPECT_TRUE(first->has_finished());
  now_ = kAcross + 9;
  EXPECT_FALSE(second->has_finished());
  now_ = kAcross + 10;
  EXPECT_TRUE(second->has_finished());
}

// The ranks of a part are numbered anew, twice.
TEST_F(EmulatedNetwork, KnowsThePlacesOfRanksInPartsThatAreSplitOff) {
  const Ends across = split([](int r) { return r % 2; }, [](int r) { return -r; });
  EXPECT_EQ(across[0]->rank(), 1);
  for (int r = 0; r < 2; ++r)
    expect_arrival(*across[static_cast<std::size_t>(r)], *across[static_cast<std::size_t>(r + 2)], kAcross);
  const Ends inside = split([](int r) { return r / 2; }, [](int r) { return r; });
  expect_arrival(*inside[3], *inside[2], kInside);
  ends_ = split([](int) { return 0; }, [](int r) { return -r; });
  const Ends again = split([](int r) { return r == 0 ? 0 : 1; }, [](int r) { return r; });
  expect_arrival(*again[2], *again[3], kInside);
  expect_arrival(*again[1], *again[2], kAcross);
}

TEST(EmulatedLink, WithoutABandwidthTakesNoTimeForBytes) {
  std::int64_t now = 0;
  const LinkClock clock = [&] { return Clock::time_point(std::chrono::microseconds(now)); };
  const Network network{.link = {.delay = std::chrono::microseconds(10), .bandwidth = 0}};
  const ThreadHub hub(2);
  const auto from = make_slow_transport(hub.connect(0), network, clock),
             to = make_slow_transport(hub.connect(1), network, clock);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{100'000}}) {
    const std::vector<char> sent(bytes, 1);
    std::vector<char> got(bytes);
    const auto sending = from->send(1, 7, sent.data(), bytes);
    const auto receiving = to->receive(0, 7, got.data(), bytes);
    now += 9;
    EXPECT_FALSE(sending->has_finished());
    EXPECT_FALSE(receiving->has_finished());
    now += 1;
    EXPECT_TRUE(sending->has_finished());
    EXPECT_TRUE(receiving->has_finished());
    EXPECT_EQ(got, sent);
  }
}

TEST(EmulatedLink, TellsOfARankThatLeft) {
  const int n = 3;
  KEEL_NEEDS_RANKS(n);
  const auto said = messages(n, [&](Communicator& ranks) {
    const auto slow = ranks.regroup({.network = {.link = {.delay = std::chrono::milliseconds(1)}}});
    seconds_of(*slow, 100);
    if (ranks.rank() == 1) throw Error("rank 1 has had enough");
    seconds_of(*slow, 100);
  });
  EXPECT_NE(said[0], "");
  EXPECT_NE(said[2], "");
}

// Tells for how long it was to wait.
class IdleTransport : public ForwardingTransport {
 public:
  IdleTransport(std::unique_ptr<Transport> inner, std::chrono::microseconds& limit)
      : ForwardingTransport(std::move(inner)), limit_(limit) {}
  void idle(std::chrono::microseconds limit) override { limit_ = limit; }

 private:
  std::chrono::microseconds& limit_;
};

TEST(EmulatedLink, WaitsNoLongerThanUntilAMessageIsToGoOn) {
  using std::chrono::microseconds;
  microseconds idle(-1), now(0);
  const ThreadHub hub(4);
  const Network network{.link = {.delay = microseconds(10), .bandwidth = 1e6},
                        .outer = {.delay = microseconds(500), .bandwidth = 1e5},
                        .group = 2};
  const auto slow = make_slow_transport(std::make_unique<IdleTransport>(hub.connect(0), idle), network,
                                        [&] { return Clock::time_point(now); });
  const auto waits = [&](microseconds limit) {
    slow->idle(limit);
    return idle;
  };
  EXPECT_EQ(waits(microseconds(2'000)), microseconds(2'000));
  const std::array<char, 100> sent = {};
  const auto far = slow->send(2, 1, sent.data(), sent.size());
  EXPECT_EQ(waits(microseconds(2'000)), microseconds(1'500));
  const auto close = slow->send(1, 1, sent.data(), sent.size());
  EXPECT_EQ(waits(microseconds(2'000)), microseconds(110));
  EXPECT_EQ(waits(microseconds(50)), microseconds(50));
  now = microseconds(109);
  EXPECT_EQ(waits(microseconds(50)), microseconds(1));
  now = microseconds(110);  // it goes on
  EXPECT_EQ(waits(microseconds(2'000)), microseconds(1'390));
  now = microseconds(1'500);
  EXPECT_EQ(waits(microseconds(2'000)), microseconds(2'000));
}

}  // namespace
}  // namespace keel
