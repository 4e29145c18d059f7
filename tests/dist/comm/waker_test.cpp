// Ranks that are threads wake each other, and only where there is news.

#include "keel/dist/comm/waker.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <thread>

#include "keel/dist/comm/node_memory.h"

namespace keel {
namespace {

constexpr auto kForever = std::chrono::seconds(60);

TEST(Waker, RemembersAWakeThatCameBeforeTheWait) {
  Waker waker;
  waker.wake();
  waker.wait(kForever);
  waker.wake();
  waker.wake();
  waker.wait(kForever);
}

TEST(Waker, WaitsUntilSomethingHasHappened) {
  Waker waker;
  std::atomic<bool> has_happened = false;
  const std::jthread wakes([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    has_happened = true;
    waker.wake();
  });
  waker.wait(kForever);
  EXPECT_TRUE(has_happened);
}

// Each thread waits for the other's turn, asleep or not.
TEST(Waker, LosesNoneOfAThousandWakes) {
  Waker wakers[2];
  std::atomic<int> turn = 0;
  constexpr int kTurns = 2'000;
  const auto play = [&](int own) {
    while (turn < kTurns) {
      if (turn % 2 == own) {
        ++turn;
        wakers[1 - own].wake();
      } else {
        wakers[own].wait(kForever);
      }
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_EQ(turn, kTurns);
}

TEST(NodeMemory, OnlyTheLastToComeHasNewsForOthers) {
  constexpr int kRanks = 3;
  constexpr std::size_t kEach = (sizeof(NodeArea) + 4095) / 4096 * 4096;
  const std::shared_ptr<void> memory(std::aligned_alloc(4096, kRanks * kEach), std::free);
  std::fill_n(static_cast<std::byte*>(memory.get()), kRanks * kEach, std::byte{0});
  SharedAreas areas{.owner = memory, .one_address_space = true};
  for (int r = 0; r < kRanks; ++r)
    areas.areas.push_back(static_cast<std::byte*>(memory.get()) + static_cast<std::size_t>(r) * kEach);
  for (const int last : {0, 1, 2}) {
    const auto value = static_cast<std::uint64_t>(last) + 1;
    for (int i = 1; i <= kRanks; ++i) {
      const int rank = (last + i) % kRanks;  // `last` comes last
      NodeMemory own(areas, rank);
      own.own().asked = value;
      EXPECT_EQ(own.is_last(&NodeArea::asked, value), rank == last);
    }
  }
}

}  // namespace
}  // namespace keel
