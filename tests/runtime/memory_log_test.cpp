// What a log of an allocator's changes says of it.

#include "keel/runtime/memory_log.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

#include "keel/runtime/storage.h"
#include "tests/support.h"

namespace keel {
namespace {

std::map<Purpose, std::int64_t> sums_of(std::span<const MemoryChange> changes) {
  std::map<Purpose, std::int64_t> sums;
  for (const MemoryChange& change : changes) sums[change.purpose] += change.bytes;
  return sums;
}

// Takes and gives back blocks of all purposes, so that some stay.
void use_memory(Allocator& allocator, std::uint64_t seed, std::vector<std::tuple<void*, std::size_t, Purpose>>& held) {
  std::mt19937_64 draw(seed);
  for (int i = 0; i < 400; ++i) {
    if (held.empty() || draw() % 5 < 3) {
      const std::size_t bytes = 1 + draw() % 5000;
      const auto purpose = static_cast<Purpose>(draw() % kPurposeCount);
      held.emplace_back(allocator.allocate(bytes, purpose), bytes, purpose);
    } else {
      std::swap(held[draw() % held.size()], held.back());
      const auto [memory, bytes, purpose] = held.back();
      held.pop_back();
      allocator.release(memory, bytes, purpose);
    }
  }
}

TEST(MemoryLog, HasThePeakAndTheCountsOfTheAllocatorToTheByte) {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    Allocator allocator;
    std::vector<std::tuple<void*, std::size_t, Purpose>> held;
    use_memory(allocator, seed, held);
    MemoryLog log(3);
    allocator.reset_peaks();
    log.begin(allocator);
    use_memory(allocator, seed + 100, held);
    log.end();
    const MemoryReport report = allocator.report();
    EXPECT_EQ(peak_of(log.changes()).bytes, static_cast<std::int64_t>(report.total.peak));
    const auto sums = sums_of(log.changes());
    for (int i = 0; i < kPurposeCount; ++i) {
      const auto purpose = static_cast<Purpose>(i);
      const auto found = sums.find(purpose);
      EXPECT_EQ(found == sums.end() ? 0 : found->second, static_cast<std::int64_t>(report[purpose].current));
    }
    for (const MemoryChange& change : log.changes()) EXPECT_EQ(change.rank, 3);
    for (const auto& [memory, bytes, purpose] : held) allocator.release(memory, bytes, purpose);
    EXPECT_EQ(sums_of(log.changes()), sums) << "nobody is told after the end";
  }
}

TEST(MemoryLog, NamesABlockBetweenItsBeginningAndItsEnd) {
  Allocator allocator;
  MemoryLog log(0);
  log.begin(allocator);
  void* const block = allocator.allocate(100, Purpose::activation);
  allocator.release(block, 100, Purpose::activation);
  allocator.count_adopted(7, Purpose::parameter);
  allocator.forget_adopted(7, Purpose::parameter);
  log.end();
  ASSERT_EQ(log.changes().size(), 4u);
  EXPECT_EQ(log.changes()[0].block, reinterpret_cast<std::uint64_t>(block));
  EXPECT_EQ(log.changes()[0].bytes, 100);
  EXPECT_EQ(log.changes()[1].block, log.changes()[0].block);
  EXPECT_EQ(log.changes()[1].bytes, -100);
  EXPECT_LE(log.changes()[0].time, log.changes()[1].time);
  EXPECT_EQ(log.changes()[2].block, 0u);
  EXPECT_EQ(log.changes()[3].bytes, -7);
  EXPECT_EQ(peak_of(log.changes()).bytes, 100);
  EXPECT_EQ(peak_of(log.changes()).after, 0);
  EXPECT_EQ(peak_of({}).after, -1);
}

TEST(MemoryLog, BeginsAnewWithWhatIsThere) {
  Allocator allocator;
  void* const block = allocator.allocate(64, Purpose::optimizer);
  MemoryLog log(0);
  log.begin(allocator);
  log.begin(allocator);
  ASSERT_EQ(log.changes().size(), 1u);
  EXPECT_EQ(log.changes()[0].bytes, 64);
  EXPECT_EQ(log.changes()[0].purpose, Purpose::optimizer);
  EXPECT_EQ(log.changes()[0].block, 0u);
  allocator.release(block, 64, Purpose::optimizer);
  log.end();
  EXPECT_EQ(sums_of(log.changes())[Purpose::optimizer], 0);
}

TEST(MemoryLog, CountsWhatItHasNoRoomFor) {
  Allocator allocator;
  MemoryLog log(0, 2);
  log.begin(allocator);
  const MemoryChange* const first = log.changes().data();
  for (int i = 0; i < 5; ++i) allocator.count_adopted(1, Purpose::bucket);
  EXPECT_EQ(log.changes().size(), 2u);
  EXPECT_EQ(log.changes().data(), first);
  EXPECT_EQ(log.dropped(), 3);
  log.end();
}

TEST(MemoryLog, HoldsWithSeveralThreads) {
  Allocator allocator;
  MemoryLog log(0);
  log.begin(allocator);
  allocator.reset_peaks();
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    threads.emplace_back([&, seed] {
      std::vector<std::tuple<void*, std::size_t, Purpose>> held;
      use_memory(allocator, seed, held);
      for (const auto& [memory, bytes, purpose] : held) allocator.release(memory, bytes, purpose);
    });
  for (std::thread& thread : threads) thread.join();
  log.end();
  EXPECT_EQ(peak_of(log.changes()).bytes, static_cast<std::int64_t>(allocator.report().total.peak));
  for (const auto& [purpose, bytes] : sums_of(log.changes())) EXPECT_EQ(bytes, 0) << name_of(purpose);
}

}  // namespace
}  // namespace keel
