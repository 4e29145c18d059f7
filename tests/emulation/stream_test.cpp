// The emulated runtime: queues that wait to be waited for, events, copies, failures.

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulation/kernels.h"

namespace keel::emulation {
namespace {

// A fresh machine for each test.
class EmulatedStreams : public ::testing::Test {
 protected:
  static void start(const MachineOptions& options = {}) {
    Machine::get().reset(options);
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  }
  void SetUp() override { start(); }
  void TearDown() override { start(); }
};

template <class T>
T* device_array(std::size_t count) {
  void* memory = nullptr;
  cuda::check(cudaMalloc(&memory, count * sizeof(T)), "cudaMalloc");
  return static_cast<T*>(memory);
}

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  cuda::check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), "cudaStreamCreateWithPriority");
  return stream;
}

int fetch(const int* memory) {
  int value = 0;
  cuda::check(cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost), "cudaMemcpy");
  return value;
}

__global__ void fail_in_thread_3() {
  KEEL_SHARED(int, slots, 3);
  slots[threadIdx.x] = 0;
}

TEST_F(EmulatedStreams, DoNothingBeforeSomethingWaits) {
  int* x = device_array<int>(1);
  *x = 0;
  cudaStream_t stream = new_stream();
  cuda::launch("store", store, {}, stream, x, 5);
  EXPECT_EQ(*x, 0);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(*x, 5);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
}

// One stream writes, another adds one; the event between them is there or forgotten.
int produced_and_consumed(std::uint64_t seed, bool with_event) {
  Machine::get().reset({.drain_seed = seed});
  int *x = device_array<int>(1), *y = device_array<int>(1);
  *x = *y = 0;
  cudaStream_t producer = new_stream(), consumer = new_stream();
  cuda::launch("store", store, {}, producer, x, 41);
  cudaEvent_t event = nullptr;
  EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, producer), cudaSuccess);
  if (with_event) cuda::check(cudaStreamWaitEvent(consumer, event), "cudaStreamWaitEvent");
  cuda::launch("add_from", add_from, {}, consumer, x, y);
  EXPECT_EQ(cudaStreamSynchronize(consumer), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  return *y;
}

TEST_F(EmulatedStreams, ReadWhatAnEventPromisesAndStaleDataWithoutIt) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) EXPECT_EQ(produced_and_consumed(seed, true), 42) << seed;
  EXPECT_EQ(produced_and_consumed(0, false), 1);
  bool stale = false, fresh = false;
  for (std::uint64_t seed = 1; seed < 20; ++seed) (produced_and_consumed(seed, false) == 1 ? stale : fresh) = true;
  EXPECT_TRUE(stale);
  EXPECT_TRUE(fresh);
}

TEST_F(EmulatedStreams, CopyPageableMemoryAtTheCallAndPinnedMemoryLate) {
  int* device = device_array<int>(2);
  int pageable = 1;
  void* memory = nullptr;
  ASSERT_EQ(cudaMallocHost(&memory, sizeof(int)), cudaSuccess);
  int* pinned = static_cast<int*>(memory);
  *pinned = 1;
  cudaStream_t stream = new_stream();
  ASSERT_EQ(cudaMemcpyAsync(device, &pageable, sizeof(int), cudaMemcpyHostToDevice, stream), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(device + 1, pinned, sizeof(int), cudaMemcpyHostToDevice, stream), cudaSuccess);
  pageable = *pinned = 2;
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(fetch(device), 1);
  EXPECT_EQ(fetch(device + 1), 2);
  *pinned = 7;
  ASSERT_EQ(cudaMemcpyAsync(pinned, device, sizeof(int), cudaMemcpyDeviceToHost, stream), cudaSuccess);
  EXPECT_EQ(*pinned, 7);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(*pinned, 1);
  EXPECT_EQ(cudaMemcpyAsync(device, &pageable, sizeof(int), cudaMemcpyDeviceToHost, stream), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(EmulatedStreams, GetThereWhenAskedAgainAndAgain) {
  int* x = device_array<int>(1);
  *x = 0;
  cudaStream_t stream = new_stream();
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  for (int i = 1; i <= 3; ++i) cuda::launch("store", store, {}, stream, x, i);
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(*x, 0);  // a single question moves nothing
  int questions = 1;
  while (cudaEventQuery(event) == cudaErrorNotReady) ASSERT_LT(++questions, 100);
  EXPECT_EQ(*x, 3);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(EmulatedStreams, TellTheTimeBetweenTwoEventsThatHavePassed) {
  int* x = device_array<int>(1);
  cudaStream_t stream = new_stream();
  cudaEvent_t begin = nullptr, end = nullptr, untimed = nullptr;
  for (cudaEvent_t* event : {&begin, &end}) ASSERT_EQ(cudaEventCreateWithFlags(event, cudaEventDefault), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming), cudaSuccess);
  float time = -1;
  ASSERT_EQ(cudaEventRecord(begin, stream), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&time, begin, end), cudaErrorNotReady);
  cuda::launch("store", store, {}, stream, x, 1);
  ASSERT_EQ(cudaEventRecord(end, stream), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(untimed, stream), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&time, begin, end), cudaErrorNotReady);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&time, begin, end), cudaSuccess);
  EXPECT_GT(time, 0);
  EXPECT_EQ(cudaEventElapsedTime(&time, begin, untimed), cudaErrorInvalidResourceHandle);
  for (cudaEvent_t event : {begin, end, untimed}) EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(EmulatedStreams, TellOfAFailedKernelOnceAndGoOn) {
  int* x = device_array<int>(1);
  cuda::launch("fail_in_thread_3", fail_in_thread_3, {.block = 32}, nullptr);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  const std::string message = cudaGetErrorString(cudaErrorLaunchFailure);
  EXPECT_NE(message.find("fail_in_thread_3, block (0, 0, 0), thread (3, 0, 0)"), std::string::npos) << message;
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  cuda::launch("store", store, {}, nullptr, x, 3);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(fetch(x), 3);
}

TEST_F(EmulatedStreams, TellEachThreadThatWaitsOfAFailedKernel) {
  cudaStream_t stream = new_stream();
  std::mutex turn;
  std::unique_lock first(turn);
  std::atomic<bool> ready = false;
  cudaError_t told = cudaSuccess;
  std::thread other([&] {
    cudaSetDevice(0);
    ready = true;
    const std::lock_guard second(turn);
    told = cudaStreamSynchronize(stream);
  });
  while (!ready) std::this_thread::yield();
  cuda::launch("fail_in_thread_3", fail_in_thread_3, {.block = 32}, stream);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  first.unlock();
  other.join();
  EXPECT_EQ(told, cudaErrorLaunchFailure);
  std::thread([] { EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess); }).join();  // it came later
}

TEST_F(EmulatedStreams, CountMemoryAndRefuseWhatDoesNotFit) {
  start({.devices = 2, .bytes = 1 << 20});
  std::size_t free = 0, total = 0;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  void* memory = device_array<char>(1 << 19);
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(total, 1u << 20);
  EXPECT_EQ(free, 1u << 19);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, (1 << 19) + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(more, nullptr);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMalloc(&more, 1 << 20), cudaSuccess);
  EXPECT_EQ(cudaFree(more), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
}

TEST_F(EmulatedStreams, RefuseABadLaunchAtTheCall) {
  EXPECT_THROW(cuda::launch("store", store, {.block = 2048}, nullptr, nullptr, 1), Error);
}

TEST_F(EmulatedStreams, RefuseWorkOfAnotherDeviceThanTheThreads) {
  start({.devices = 2});
  int* x = device_array<int>(1);
  cudaStream_t stream = new_stream();
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_THROW(cuda::launch("store", store, {}, stream, x, 1), Error);
  EXPECT_EQ(cudaEventRecord(event, nullptr), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  cuda::launch("store", store, {}, stream, x, 2);
  EXPECT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

using EmulatedStreamsDeathTest = EmulatedStreams;

TEST_F(EmulatedStreamsDeathTest, CrashHostCodeThatTouchesDeviceMemory) {
  start({.guard_memory = true});
  int* x = device_array<int>(1);
  cuda::launch("store", store, {}, nullptr, x, 9);
  EXPECT_EQ(fetch(x), 9);
  EXPECT_DEATH(*x = 1, "");
  EXPECT_DEATH(EXPECT_EQ(*x, 9), "");
  EXPECT_EQ(fetch(x), 9);  // a copy is the way
}

}  // namespace
}  // namespace keel::emulation
