#include "keel/runtime/allocator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

namespace keel {
namespace {

constexpr Purpose kPurposes[] = {Purpose::parameter,  Purpose::gradient, Purpose::optimizer,
                                 Purpose::activation, Purpose::bucket,   Purpose::workspace};

TEST(Allocator, CountsRequestedBytesByPurposeExactly) {
  Allocator allocator;
  std::size_t bytes = 1, total = 0;
  std::vector<void*> blocks;
  for (const Purpose purpose : kPurposes) {
    blocks.push_back(allocator.allocate(bytes, purpose));
    EXPECT_EQ(allocator.report()[purpose].current, bytes) << name_of(purpose);
    total += bytes;
    bytes = bytes * 7 + 3;
  }
  EXPECT_EQ(allocator.report().total.current, total);
  bytes = 1;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    allocator.release(blocks[i], bytes, kPurposes[i]);
    EXPECT_EQ(allocator.report()[kPurposes[i]].current, 0u);
    EXPECT_EQ(allocator.report()[kPurposes[i]].peak, bytes);
    bytes = bytes * 7 + 3;
  }
  EXPECT_EQ(allocator.report().total.current, 0u);
  EXPECT_EQ(allocator.report().total.peak, total);
}

TEST(Allocator, ThePeakOfTheSumIsNotTheSumOfThePeaks) {
  Allocator allocator;
  void* a = allocator.allocate(1000, Purpose::gradient);
  allocator.release(a, 1000, Purpose::gradient);
  void* b = allocator.allocate(400, Purpose::activation);
  EXPECT_EQ(allocator.report().total.peak, 1000u);
  allocator.reset_peaks();
  EXPECT_EQ(allocator.report().total.peak, 400u);
  EXPECT_EQ(allocator.report()[Purpose::gradient].peak, 0u);
  allocator.release(b, 400, Purpose::activation);
}

TEST(Allocator, HandsReleasedBlocksOutAgainUntilTrimmed) {
  Allocator allocator;
  void* first = allocator.allocate(100000, Purpose::activation);
  allocator.release(first, 100000, Purpose::activation);
  const std::size_t reserved = allocator.report().reserved;
  EXPECT_GE(reserved, 100000u);
  EXPECT_EQ(allocator.allocate(100000, Purpose::workspace), first);
  EXPECT_EQ(allocator.report().reserved, reserved);
  allocator.release(first, 100000, Purpose::workspace);
  allocator.trim();
  EXPECT_EQ(allocator.report().reserved, 0u);
}

TEST(Allocator, AlignsBlocksAndGivesNothingForNothing) {
  Allocator allocator;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{63}, std::size_t{4097}, std::size_t{3} << 20}) {
    void* block = allocator.allocate(bytes, Purpose::workspace);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % (bytes > 1 << 21 ? 1 << 21 : 64), 0u);
    allocator.release(block, bytes, Purpose::workspace);
  }
  EXPECT_EQ(allocator.allocate(0, Purpose::workspace), nullptr);
  allocator.release(nullptr, 0, Purpose::workspace);
}

TEST(Allocator, CountsStayExactWithSeveralThreads) {
  Allocator allocator;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = 1; i < 500; ++i) {
        const std::size_t bytes = i * 64 + static_cast<std::size_t>(t);
        allocator.release(allocator.allocate(bytes, Purpose::bucket), bytes, Purpose::bucket);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator.report().total.current, 0u);
}

}  // namespace
}  // namespace keel
