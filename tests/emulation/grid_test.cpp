// What the emulator promises of a kernel: the numbers of a GPU where the kernel is right, a clear error where not.

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "keel/runtime/emulation/language.h"
#include "keel/runtime/emulation/shared.h"
#include "keel/runtime/error.h"

namespace keel::emulation {
namespace {

template <class Kernel>
void run(const Grid& grid, Kernel&& kernel) {
  run_grid(grid, grid_options(), kernel);
}

// Runs a kernel on one block of `threads` and returns the message of its error, or "".
template <class Kernel>
std::string error_of(unsigned threads, Kernel&& kernel, std::size_t dynamic = 0) {
  try {
    run({.kernel = "kernel", .grid = 1, .block = threads, .dynamic_shared_bytes = dynamic}, kernel);
  } catch (const Error& error) { return error.what(); }
  return {};
}

struct InOrder {
  explicit InOrder(Order order, std::uint64_t seed = 1) { grid_options() = {order, order, seed, true}; }
  ~InOrder() { grid_options() = {}; }
};

// Sums by warp shuffles, then over warps by shared memory; each thread gets the block's sum.
float block_sum(float value) {
  KEEL_SHARED(float, partial, 32);
  for (int m = 16; m > 0; m /= 2) value += __shfl_xor_sync(0xffffffffu, value, m);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) total += partial[w];
  __syncthreads();
  return total;
}

TEST(EmulatedGrid, RunsEachThreadOfEachBlockOnce) {
  for (const Order order : {Order::forward, Order::reverse, Order::shuffled}) {
    const InOrder scope(order);
    std::vector<int> seen(2 * 3 * 4 * 5 * 6);
    run({.kernel = "count", .grid = {2, 3}, .block = {4, 5, 6}}, [&] {
      const unsigned block = blockIdx.x + 2 * blockIdx.y, thread = threadIdx.x + 4 * (threadIdx.y + 5 * threadIdx.z);
      ++seen[block * 120 + thread];
    });
    for (const int count : seen) EXPECT_EQ(count, 1);
  }
}

TEST(EmulatedGrid, RunsMoreBlocksThanASanitizerHasRoomForOpenCalls) {
  int count = 0;
  run({.kernel = "count", .grid = 70000, .block = 1}, [&] { ++count; });
  EXPECT_EQ(count, 70000);
}

TEST(EmulatedGrid, ReducesByShufflesAndSharedMemoryInEveryOrder) {
  for (const Order order : {Order::forward, Order::reverse, Order::shuffled}) {
    const InOrder scope(order, 7);
    std::vector<float> sums(4 * 96);
    run({.kernel = "sum", .grid = 4, .block = 96}, [&] {
      for (int repeat = 0; repeat < 3; ++repeat)
        sums[blockIdx.x * 96 + threadIdx.x] = block_sum(static_cast<float>(threadIdx.x + blockIdx.x));
    });
    for (int b = 0; b < 4; ++b)
      for (int t = 0; t < 96; ++t) EXPECT_EQ(sums[b * 96 + t], 96 * 95 / 2 + 96 * b);
  }
}

TEST(EmulatedGrid, GivesShufflesAndVotesTheirCudaMeaning) {
  run({.kernel = "warp", .grid = 1, .block = 64}, [] {
    const int t = static_cast<int>(threadIdx.x), lane = t % 32;
    EXPECT_EQ(__shfl_sync(0xffffffffu, t, 5), t / 32 * 32 + 5);
    EXPECT_EQ(__shfl_sync(0xffffffffu, t, 3, 8), t / 8 * 8 + 3);
    EXPECT_EQ(__shfl_down_sync(0xffffffffu, t, 4), lane < 28 ? t + 4 : t);
    EXPECT_EQ(__shfl_up_sync(0xffffffffu, t, 4), lane >= 4 ? t - 4 : t);
    EXPECT_EQ(__shfl_xor_sync(0xffffffffu, t, 1), t ^ 1);
    EXPECT_EQ(__ballot_sync(0xffffffffu, lane < 3), 7u);
    EXPECT_TRUE(__any_sync(0xffffffffu, lane == 31));
    EXPECT_FALSE(__all_sync(0xffffffffu, lane != 31));
    const unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;
    EXPECT_EQ(__shfl_xor_sync(half, t, 8), t ^ 8);
  });
}

TEST(EmulatedGrid, GivesAtomicsTheirCudaMeaning) {
  int sum = 0, most = 0, least = 100, last = -1, first = -1;
  std::vector<int> before(96);
  run({.kernel = "atomics", .grid = 2, .block = 48}, [&] {
    const int t = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    before[static_cast<std::size_t>(atomicAdd(&sum, 1))] = t;
    atomicMax(&most, t);
    atomicMin(&least, t);
    EXPECT_EQ(atomicExch(&last, t), t - 1);
    EXPECT_EQ(atomicCAS(&first, -1, t), t == 0 ? -1 : 0);
  });
  EXPECT_EQ((std::vector{sum, most, least, last, first}), (std::vector{96, 95, 0, 95, 0}));
  for (int t = 0; t < 96; ++t) EXPECT_EQ(before[static_cast<std::size_t>(t)], t);  // each got another number
}

TEST(EmulatedGrid, NamesBothThreadsOfARace) {
  const std::string message = error_of(64, [] {
    KEEL_SHARED(int, slots, 64);
    slots[threadIdx.x] = static_cast<int>(threadIdx.x);
    [[maybe_unused]] const int other = slots[63 - threadIdx.x];
  });
  EXPECT_NE(message.find("kernel, block (0, 0, 0), thread (32, 0, 0)"), std::string::npos) << message;
  EXPECT_NE(message.find("race on shared memory"), std::string::npos) << message;
  EXPECT_NE(message.find("thread (31, 0, 0) did at"), std::string::npos) << message;
  EXPECT_NE(message.find("grid_test.cpp:"), std::string::npos) << message;
}

TEST(EmulatedGrid, CountsAWarpsOwnMeetingsAsOrder) {
  EXPECT_EQ(error_of(32,
                     [] {
                       KEEL_SHARED(int, slots, 32);
                       slots[threadIdx.x] = 1;
                       __syncwarp();
                       EXPECT_EQ(slots[31 - threadIdx.x], 1);
                     }),
            "");
}

TEST(EmulatedGrid, CountsNoShuffleAndNoVoteAsOrder) {
  const auto expect_race = [](const std::string& message) {
    EXPECT_NE(message.find("race on shared memory"), std::string::npos) << message;
  };
  const auto exchange_by = [](auto&& meet) {
    return error_of(32, [&] {
      KEEL_SHARED(int, slots, 32);
      slots[threadIdx.x] = 1;
      meet();
      [[maybe_unused]] const int other = slots[31 - threadIdx.x];
    });
  };
  expect_race(exchange_by([] { __shfl_xor_sync(0xffffffffu, 1, 1); }));
  expect_race(exchange_by([] { __ballot_sync(0xffffffffu, 1); }));
  EXPECT_EQ(exchange_by([] { __syncwarp(); }), "");
}

TEST(EmulatedGrid, RefusesHintedAccessesThatAGpuCannotMake) {
  alignas(16) unsigned numbers[8] = {};
  const std::string read = error_of(32, [&] {
    if (threadIdx.x == 3) __ldcs(reinterpret_cast<const uint4*>(numbers + 1));
  });
  EXPECT_NE(read.find("thread (3, 0, 0)"), std::string::npos) << read;
  EXPECT_NE(read.find("an access to 16 bytes of memory at no multiple of that"), std::string::npos) << read;
  EXPECT_NE(error_of(1, [&] { __stcs(reinterpret_cast<uint2*>(numbers + 1), uint2{}); }), "");
  EXPECT_EQ(error_of(1, [&] { __stcs(reinterpret_cast<uint2*>(numbers + 2), uint2{}); }), "");
}

TEST(EmulatedGrid, ReportsABarrierThatNotAllThreadsReach) {
  const std::string ended = error_of(64, [] {
    if (threadIdx.x < 60) __syncthreads();
  });
  EXPECT_NE(ended.find("divergent barrier: thread (0, 0, 0) waits for the block"), std::string::npos) << ended;
  EXPECT_NE(ended.find("4 threads of 64 have ended"), std::string::npos) << ended;
  const std::string elsewhere = error_of(64, [] {
    if (threadIdx.x < 32) __syncthreads();
    else __syncthreads();
  });
  EXPECT_NE(elsewhere.find("thread (32, 0, 0) waits at"), std::string::npos) << elsewhere;
  const std::string lanes = error_of(32, [] {
    if (threadIdx.x != 7) __shfl_xor_sync(0xffffffffu, 1, 1);
  });
  EXPECT_NE(lanes.find("waits for its warp"), std::string::npos) << lanes;
}

TEST(EmulatedGrid, ChecksTheBoundsOfSharedArrays) {
  const std::string past = error_of(32, [] {
    KEEL_SHARED(float, x, 32);
    x[threadIdx.x + 1] = 0;
  });
  EXPECT_NE(past.find("thread (31, 0, 0)"), std::string::npos) << past;
  EXPECT_NE(past.find("element 32 of a shared array of 32"), std::string::npos) << past;
#if !defined(__SANITIZE_ADDRESS__)
  const std::string raw = error_of(32, [] {
    KEEL_SHARED(float, x, 32);
    x.data()[threadIdx.x + 1] = 0;
  });
  EXPECT_NE(raw.find("something wrote past a shared array of 128 bytes"), std::string::npos) << raw;
#endif
}

TEST(EmulatedGrid, GivesEachBlockSharedMemoryFullOfNan) {
  int numbers = 0;
  run({.kernel = "nan", .grid = 3, .block = 32, .dynamic_shared_bytes = 256}, [&] {
    KEEL_SHARED(float, fixed, 32);
    const auto dynamic = dynamic_span<float>();
    const float a = fixed[threadIdx.x], b = dynamic[threadIdx.x + 32];
    numbers += a == a;
    numbers += b == b;
    __syncthreads();
    fixed[threadIdx.x] = 1;
    dynamic[threadIdx.x + 32] = 1;
  });
  EXPECT_EQ(numbers, 0);
}

TEST(EmulatedGrid, RefusesALaunchThatNoDeviceAccepts) {
  EXPECT_NE(error_of(1025, [] {}).find("1025 x 1 x 1 threads"), std::string::npos);
  EXPECT_NE(error_of(0, [] {}).find("an empty grid or block"), std::string::npos);
  EXPECT_NE(error_of(
                32, [] {}, std::size_t{1} << 20)
                .find("dynamic shared memory"),
            std::string::npos);
  EXPECT_NE(error_of(32,
                     [] {
                       KEEL_SHARED(float, big, 20000);
                       big[0] = 0;
                     })
                .find("static shared memory"),
            std::string::npos);
}

TEST(EmulatedGrid, CountsBothKindsOfSharedMemoryTogether) {
  const auto kernel = [] {
    KEEL_SHARED(float, fixed, 64);
    fixed[0] = 0;
  };
  EXPECT_EQ(error_of(1, kernel, kDynamicSharedLimit - 256), "");
  const std::string message = error_of(1, kernel, kDynamicSharedLimit - 128);
  EXPECT_NE(message.find("256 bytes in static arrays"), std::string::npos) << message;
}

// A kernel in which one thread of one block goes wrong.
template <class Fault>
std::string error_in_the_middle(Fault&& fault) {
  try {
    run({.kernel = "middle", .grid = {2, 3}, .block = {4, 2, 8}, .dynamic_shared_bytes = 64}, [&] {
      const bool block = blockIdx.x == 1 && blockIdx.y == 2;
      fault(block && threadIdx.x == 3 && threadIdx.y == 1 && threadIdx.z == 5, block);
    });
  } catch (const Error& error) { return error.what(); }
  return {};
}

TEST(EmulatedGrid, NamesKernelBlockAndThreadOfWhateverGoesWrong) {
  const std::string place = "middle, block (1, 2, 0), thread (3, 1, 5)";
  const auto expect = [&](const std::string& message, const char* what) {
    EXPECT_EQ(message.find(place), 0u) << message;
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  expect(error_in_the_middle([](bool here, bool) {
           KEEL_SHARED(float, x, 8);
           if (here) x[8] = 1;
         }),
         "element 8 of a shared array of 8");
  expect(error_in_the_middle([](bool here, bool) {
           KEEL_SHARED(float, x, 8);
           if (here) x[-1] = 1;
         }),
         "element -1 of a shared array of 8");
  expect(error_in_the_middle([](bool here, bool) {
           const auto x = dynamic_span<double>();
           if (here) x[8] = 1;
         }),
         "element 8 of a shared array of 8");
  expect(error_in_the_middle([](bool here, bool) {
           if (!here) return;
           KEEL_SHARED(float, big, 20000);
           big[0] = 1;
         }),
         "static shared memory of 80000 bytes");
  expect(error_in_the_middle([](bool here, bool) {
           if (here) __shfl_sync(1u << lane(), 1, static_cast<int>(lane() + 1));
         }),
         "a shuffle reads a lane that is not in its mask");
  expect(error_in_the_middle([](bool here, bool) {
           if (here) __syncwarp(1u << (lane() ^ 1));
         }),
         "is not in its own mask");
  expect(error_in_the_middle([](bool here, bool) {
           if (here) __syncthreads();
         }),
         "divergent barrier: thread (3, 1, 5) waits for the block at");
  const std::string race = error_in_the_middle([](bool here, bool block) {
    KEEL_SHARED(int, x, 1);
    if (here || (block && threadIdx.x + threadIdx.y + threadIdx.z == 0)) x[0] = 1;
  });
  expect(race, "race on shared memory: nothing orders this write after what thread (0, 0, 0) did at");
}

TEST(EmulatedGrid, ShowsAProbeEachGrid) {
  Probe probe;
  std::vector<std::string> seen;
  probe.on_grid = [&](const Grid& grid) { seen.push_back(concat(grid.kernel, ' ', grid.grid.x, ' ', grid.block.y)); };
  grid_options().probe = &probe;
  run({.kernel = "first", .grid = 2, .block = {3, 4}}, [] {});
  run({.kernel = "second", .grid = 1, .block = 1}, [] {});
  grid_options() = {};
  run({.kernel = "third", .grid = 1, .block = 1}, [] {});
  EXPECT_EQ(seen, (std::vector<std::string>{"first 2 4", "second 1 1"}));
}

TEST(EmulatedGrid, ReadsWhereToStop) {
  const Probe all = probe_of("name 1,2,3 4,5");
  EXPECT_EQ(all.kernel, "name");
  EXPECT_EQ((std::vector{all.block.x, all.block.y, all.block.z}), (std::vector{1u, 2u, 3u}));
  EXPECT_EQ((std::vector{all.thread.x, all.thread.y, all.thread.z}), (std::vector{4u, 5u, 0u}));
  EXPECT_EQ(probe_of("name 7").block.x, 7u);
  EXPECT_EQ(probe_of("name").thread.x, 0u);
  for (const char* wrong : {"", "name 1 2 3", "name a", "name -1", "name 1,", "name 1,2,3,4", "name 1 2x"})
    EXPECT_THROW(probe_of(wrong), Error) << wrong;
}

TEST(EmulatedGrid, GoesOnAfterAnError) {
  EXPECT_NE(error_of(64,
                     [] {
                       __syncthreads();
                       if (threadIdx.x == 40) throw Error("stop");
                       __syncthreads();
                     }),
            "");
  std::vector<float> sums(64);
  EXPECT_EQ(error_of(64, [&] { sums[threadIdx.x] = block_sum(1); }), "");
  EXPECT_EQ(sums, std::vector<float>(64, 64));
}

}  // namespace
}  // namespace keel::emulation
