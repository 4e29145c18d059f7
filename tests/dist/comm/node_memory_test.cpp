// The memory of a node's ranks by itself, with counters that the test writes.

#include "keel/dist/comm/node_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "keel/runtime/error.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using testing::error_of;

// The areas of all ranks, in one thread.
class OwnAreas {
 public:
  explicit OwnAreas(int ranks, bool one_address_space = false) : shared_{.one_address_space = one_address_space} {
    constexpr std::size_t kAlignment = 4096;
    const std::size_t each = (NodeMemory::bytes_of_area(ranks) + kAlignment - 1) / kAlignment * kAlignment;
    const std::shared_ptr<void> memory(std::aligned_alloc(kAlignment, each * static_cast<std::size_t>(ranks)),
                                       std::free);
    std::memset(memory.get(), 0, each * static_cast<std::size_t>(ranks));
    shared_.owner = memory;
    for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r)
      shared_.areas.push_back(static_cast<std::byte*>(memory.get()) + r * each);
  }
  NodeMemory seen_by(int rank) const { return NodeMemory(shared_, rank); }
  NodeArea& operator[](int rank) { return *reinterpret_cast<NodeArea*>(shared_.areas[static_cast<std::size_t>(rank)]); }
  const std::byte* begin(int rank) const { return shared_.areas[static_cast<std::size_t>(rank)]; }

 private:
  SharedAreas shared_;
};

TEST(NodeMemoryAlone, HasATableForEachSlotBehindTheArea) {
  for (const int n : {1, 2, 5}) {
    const OwnAreas areas(n);
    const NodeMemory memory = areas.seen_by(n - 1);
    for (int r = 0; r < n; ++r) {
      const auto* at = reinterpret_cast<const std::int64_t*>(areas.begin(r) + sizeof(NodeArea));
      for (std::uint64_t slot = 0; slot < NodeArea::kSlots; ++slot) {
        EXPECT_EQ(memory.table(r, slot).data(), at);
        EXPECT_EQ(memory.table(r, slot).size(), static_cast<std::size_t>(n) + 2);
        at += n + 2;
      }
      EXPECT_EQ(reinterpret_cast<const std::byte*>(at), areas.begin(r) + NodeMemory::bytes_of_area(n));
    }
  }
}

TEST(NodeMemoryAlone, KnowsWhoseCounterIsBehind) {
  constexpr int kRanks = 3;
  OwnAreas areas(kRanks);
  for (int own = 0; own < kRanks; ++own) {
    NodeMemory memory = areas.seen_by(own);
    for (unsigned behind = 0; behind < 8; ++behind) {
      std::vector<int> expected;
      for (int r = 0; r < kRanks; ++r) {
        const bool is_behind = (behind >> r & 1) != 0;
        areas[r].shown = is_behind ? 6 : 7;
        if (is_behind && r != own) expected.push_back(r);
      }
      EXPECT_EQ(memory.those_behind(&NodeArea::shown, 7), expected);
      EXPECT_EQ(memory.is_last(&NodeArea::shown, 7), expected.empty());
      EXPECT_EQ(memory.all_have(&NodeArea::shown, 7), expected.empty());
    }
  }
}

TEST(NodeMemoryAlone, MissesARankThatHasLeftInOrderAtOnce) {
  OwnAreas areas(3);
  areas[1].asked = areas[2].asked = 5;
  areas.seen_by(1).leave(false);
  NodeMemory memory = areas.seen_by(0);
  EXPECT_TRUE(memory.all_have(&NodeArea::asked, 5)) << "it came so far";
  EXPECT_EQ(error_of([&] { memory.all_have(&NodeArea::asked, 6); }), "rank 1 has left while rank 0 waits for it");
}

// Its reason may yet come.
TEST(NodeMemoryAlone, WaitsForARankThatHasLeftAbruptly) {
  OwnAreas areas(3);
  areas[1].asked = 5;
  areas.seen_by(2).leave(true);
  NodeMemory memory = areas.seen_by(0);
  EXPECT_EQ(error_of([&] { EXPECT_FALSE(memory.all_have(&NodeArea::asked, 5)); }), "");
}

TEST(NodeMemoryAlone, FindsPlacesInWindowsOfAllRanks) {
  constexpr std::size_t kBytes = 64;
  std::vector<std::byte> first(2 * kBytes + 1), second(2 * kBytes + 1);
  const OwnAreas areas(2);
  NodeMemory memory = areas.seen_by(1);
  const auto window = [&](std::vector<std::byte>& bytes) {
    return memory.add_window({.areas = {bytes.data(), bytes.data() + kBytes}}, kBytes);
  };
  const std::uint32_t one = window(first), two = window(second);
  EXPECT_NE(one, two);
  for (const std::size_t offset : {std::size_t{0}, std::size_t{17}, kBytes - 1}) {
    const NodeArea::Place place = memory.place_of(second.data() + kBytes + offset);
    EXPECT_EQ(place.window, two);
    EXPECT_EQ(place.offset, offset);
    EXPECT_EQ(memory.find(0, place), second.data() + offset);
    EXPECT_EQ(memory.find(1, place), second.data() + kBytes + offset);
  }
  EXPECT_EQ(memory.place_of(first.data() + kBytes).window, one);
  for (const std::byte* outside : {second.data() + kBytes - 1, second.data() + 2 * kBytes})
    EXPECT_EQ(memory.place_of(outside).window, NodeArea::Place::kPrivate);
  const NodeArea::Place gone = memory.place_of(first.data() + kBytes);
  memory.remove_window(one);
  EXPECT_EQ(memory.place_of(first.data() + kBytes).window, NodeArea::Place::kPrivate);
  EXPECT_EQ(memory.find(0, gone), nullptr);
  EXPECT_EQ(memory.place_of(second.data() + kBytes).window, two);
}

TEST(NodeMemoryAlone, FindsAnyAddressWhereRanksHaveOneSpaceOfThem) {
  const OwnAreas areas(2, true);
  const NodeMemory memory = areas.seen_by(1);
  std::byte any = {};
  EXPECT_EQ(memory.find(0, memory.place_of(&any)), &any);
}

TEST(NodeMemoryAlone, LetsNobodyInOnceARankHasClosed) {
  constexpr int kRanks = 3;
  for (int closed = 0; closed < kRanks; ++closed) {
    OwnAreas areas(kRanks);
    for (int own = 0; own < kRanks; ++own) {
      NodeMemory memory = areas.seen_by(own);
      EXPECT_FALSE(memory.any_has_closed());
      EXPECT_TRUE(memory.visit());
      for (int r = 0; r < kRanks; ++r) EXPECT_EQ(areas[r].visitors, r == own ? 0U : 1U);
      memory.end_visit();
      for (int r = 0; r < kRanks; ++r) EXPECT_EQ(areas[r].visitors, 0U);
    }
    areas.seen_by(closed).close();
    for (int own = 0; own < kRanks; ++own) {
      NodeMemory memory = areas.seen_by(own);
      EXPECT_TRUE(memory.any_has_closed());
      EXPECT_EQ(memory.visit(), own == closed);
      if (own == closed) memory.end_visit();
      for (int r = 0; r < kRanks; ++r) EXPECT_EQ(areas[r].visitors, 0U);
    }
  }
}

// They read its tensors.
TEST(NodeMemoryAlone, ARankThatClosesWaitsForItsVisitors) {
  for (const bool one_address_space : {true, false}) {
    OwnAreas areas(2, one_address_space);
    NodeMemory host = areas.seen_by(0), guest = areas.seen_by(1);
    ASSERT_TRUE(guest.visit());
    std::atomic<bool> has_gone = false;
    const std::jthread goes([&] {
      while (!host.any_has_closed()) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      has_gone = true;
      guest.end_visit();
    });
    host.close();
    ASSERT_TRUE(has_gone);
    ++areas[0].visitors;
    host.close();  // a second time it waits for nobody, as they see that it has closed
  }
}

}  // namespace
}  // namespace keel
