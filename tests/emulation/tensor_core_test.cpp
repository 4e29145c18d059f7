// What the emulator says of wrong uses of asynchronous copies and matrix loads. That right ones give the right numbers
// is tested by tests/cuda/tensor_core_test.cpp.

#include "keel/runtime/cuda/tensor_core.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "keel/runtime/error.h"

namespace keel::cuda {
namespace {

// Runs a kernel on one block and returns the message of its error, or "".
template <class Kernel>
std::string error_of(unsigned threads, Kernel&& kernel) {
  try {
    emulation::run_grid({.kernel = "kernel", .grid = 1, .block = threads}, {}, kernel);
  } catch (const Error& error) { return error.what(); }
  return {};
}

void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

alignas(16) float numbers[64 * 4];

TEST(EmulatedCopies, HoldNanUntilTheWait) {
  for (int i = 0; i < 256; ++i) numbers[i] = static_cast<float>(i);
  float early = 0, late = 0, half = 0, rest = 1;
  EXPECT_EQ(error_of(32,
                     [&] {
                       KEEL_SHARED(float, x, 128);
                       const unsigned t = threadIdx.x;
                       copy_async(shared_address(&x.data()[4 * t]), numbers + 4 * t, 8);
                       commit_copies();
                       if (t == 5) early = x[20];
                       wait_copies<0>();
                       if (t == 5) late = x[20], half = x[21], rest = x[22];
                     }),
            "");
  EXPECT_TRUE(std::isnan(early));
  EXPECT_EQ(late, 20);
  EXPECT_EQ(half, 21);
  EXPECT_EQ(rest, 0);
}

TEST(EmulatedCopies, ArriveGroupByGroup) {
  bool arrived[3][3] = {};
  EXPECT_EQ(error_of(1,
                     [&] {
                       KEEL_SHARED(float, x, 12);
                       for (int i = 0; i < 3; ++i) {
                         copy_async(shared_address(&x.data()[4 * i]), numbers + 4 * i);
                         if (i != 1) commit_copies();  // the second and the third are one group
                       }
                       const auto look = [&](int when) {
                         for (int i = 0; i < 3; ++i) arrived[when][i] = !std::isnan(static_cast<float>(x[4 * i]));
                       };
                       wait_copies<2>();
                       look(0);
                       wait_copies<1>();
                       look(1);
                       wait_copies<0>();
                       look(2);
                     }),
            "");
  const bool expected[3][3] = {{false, false, false}, {true, false, false}, {true, true, true}};
  for (int when = 0; when < 3; ++when)
    for (int i = 0; i < 3; ++i) EXPECT_EQ(arrived[when][i], expected[when][i]) << when << ' ' << i;
}

TEST(EmulatedCopies, AreNotWaitedForOutsideAGroup) {
  bool arrived = true;
  const std::string message = error_of(1, [&] {
    KEEL_SHARED(float, x, 4);
    copy_async(shared_address(x.data()), numbers);
    wait_copies<0>();
    arrived = !std::isnan(static_cast<float>(x[0]));
  });
  EXPECT_FALSE(arrived);
  expect_says(message, "the thread ends before 1 of its copies to shared memory have arrived");
}

TEST(EmulatedCopies, ReachOtherThreadsOnlyAfterABarrier) {
  const auto kernel = [](bool barrier) {
    KEEL_SHARED(float, x, 256);
    const unsigned t = threadIdx.x;
    copy_async(shared_address(&x.data()[4 * t]), numbers + 4 * t);
    commit_copies();
    wait_copies<0>();
    if (barrier) __syncthreads();
    [[maybe_unused]] const float other = x[4 * (63 - t)];
  };
  EXPECT_EQ(error_of(64, [&] { kernel(true); }), "");
  expect_says(error_of(64, [&] { kernel(false); }), "race on shared memory");
}

TEST(EmulatedCopies, MustNotStartWhileOthersStillRead) {
  const auto kernel = [](bool barrier) {
    KEEL_SHARED(float, x, 256);
    const unsigned t = threadIdx.x;
    [[maybe_unused]] const float other = x[4 * (63 - t)];
    if (barrier) __syncthreads();
    copy_async(shared_address(&x.data()[4 * t]), numbers + 4 * t);
    commit_copies();
    wait_copies<0>();
  };
  EXPECT_EQ(error_of(64, [&] { kernel(true); }), "");
  expect_says(error_of(64, [&] { kernel(false); }), "race on shared memory");
}

TEST(EmulatedCopies, GoToSharedMemoryInUnitsOfSixteenBytes) {
  expect_says(error_of(1,
                       [] {
                         KEEL_SHARED(float, x, 8);
                         copy_async(shared_address(x.data() + 1), numbers);
                       }),
              "no multiple of 16");
  expect_says(error_of(1,
                       [] {
                         KEEL_SHARED(float, x, 8);
                         copy_async(shared_address(x.data()), numbers + 1);
                       }),
              "from no multiple of 16");
  expect_says(error_of(1,
                       [] {
                         KEEL_SHARED(float, x, 8);
                         copy_async(shared_address(x.data() + 8), numbers);
                       }),
              "no array of shared memory");
}

TEST(EmulatedMatrixLoads, AreCheckedForBoundsAlignmentAndRaces) {
  const auto load = [](int offset, bool barrier) {
    KEEL_SHARED(float, x, 128);
    for (int i = 0; i < 4; ++i) x[4 * threadIdx.x + i] = 0;
    if (barrier) __syncwarp();
    unsigned out[4];
    load_matrices(out, shared_address(x.data() + 4 * threadIdx.x + offset));
  };
  EXPECT_EQ(error_of(32, [&] { load(0, true); }), "");
  const std::string past = error_of(32, [&] { load(4, true); });
  expect_says(past, "thread (31, 0, 0)");
  expect_says(past, "16 bytes that lie in no array of shared memory");
  expect_says(error_of(32, [&] { load(-1, true); }), "shared memory");
  expect_says(error_of(32, [&] { load(0, false); }), "race on shared memory");
}

TEST(EmulatedMatrixLoads, DoNotOrderWhatLanesWrite) {
  expect_says(error_of(32,
                       [] {
                         KEEL_SHARED(float, x, 128);
                         unsigned a[4] = {}, out[1];
                         float sum[4] = {};
                         for (int i = 0; i < 4; ++i) x[4 * threadIdx.x + i] = 0;
                         multiply_add<bf16>(sum, a, 0, 0);
                         load_matrices(out, shared_address(x.data()) + 16 * static_cast<int>(threadIdx.x % 8));
                       }),
              "race on shared memory");
}

TEST(EmulatedProducts, NeedTheWholeWarp) {
  expect_says(error_of(32,
                       [] {
                         unsigned a[4] = {};
                         float sum[4] = {};
                         if (threadIdx.x != 3) multiply_add<f16>(sum, a, 0, 0);
                       }),
              "waits for its warp");
}

}  // namespace
}  // namespace keel::cuda
