// Stream capture and graphs of the emulated runtime.

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/emulation/kernels.h"

namespace keel::emulation {
namespace {

__global__ void double_up(int* x) { *x *= 2; }

class EmulatedGraphs : public ::testing::Test {
 protected:
  void SetUp() override { start(0); }
  void TearDown() override {
    for (cudaEvent_t event : events) cudaEventDestroy(event);
    Machine::get().reset({});
    cudaGetLastError();
  }
  void start(std::uint64_t seed) {
    Machine::get().reset({.drain_seed = seed});
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    for (cudaStream_t* made : {&stream, &side}) cudaStreamCreateWithPriority(made, cudaStreamNonBlocking, 0);
    for (int** made : {&x, &y}) {
      void* memory = nullptr;
      EXPECT_EQ(cudaMalloc(&memory, sizeof(int)), cudaSuccess);
      *made = static_cast<int*>(memory);
      **made = 0;
    }
  }
  cudaEvent_t recorded(cudaStream_t of) {
    cudaEvent_t event = nullptr;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    EXPECT_EQ(cudaEventRecord(event, of), cudaSuccess);
    events.push_back(event);
    return event;
  }
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    ASSERT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
  }
  cudaGraphExec_t finished() {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphInstantiate(&executable, graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);  // the executable one has its own copy
    return executable;
  }
  // What the end of a spoilt capture answers.
  cudaError_t spoilt() {
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(stream, &graph);
    EXPECT_EQ(graph, nullptr);
    return error;
  }
  // A fork: `side` stores, `stream` adds; with the event between, or with one that comes too late.
  int forked_sum(std::uint64_t seed, bool ordered) {
    start(seed);
    begin();
    cudaStreamWaitEvent(side, recorded(stream));
    cuda::launch("store", store, {}, side, x, 41);
    if (ordered) cudaStreamWaitEvent(stream, recorded(side));
    cuda::launch("add_from", add_from, {}, stream, x, y);
    if (!ordered) cudaStreamWaitEvent(stream, recorded(side));
    cudaGraphExec_t graph = finished();
    EXPECT_EQ(cudaGraphLaunch(graph, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
    return *y;
  }
  cudaStreamCaptureStatus status() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    EXPECT_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
    return status;
  }

  cudaStream_t stream = nullptr, side = nullptr;
  int *x = nullptr, *y = nullptr;
  std::vector<cudaEvent_t> events;
};

TEST_F(EmulatedGraphs, RecordWorkAndReplayItAsOftenAsAsked) {
  begin();
  EXPECT_EQ(status(), cudaStreamCaptureStatusActive);
  int value = 5;
  cuda::launch("store", store, {}, stream, x, value);
  cuda::launch("double_up", double_up, {}, stream, x);
  cuda::launch("add_from", add_from, {}, stream, x, y);
  value = 6;  // arguments were copied
  cudaGraphExec_t graph = finished();
  EXPECT_EQ(status(), cudaStreamCaptureStatusNone);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(*x, 0);  // nothing has run
  for (int repeat = 0; repeat < 3; ++repeat) {
    *x = *y = 0;
    ASSERT_EQ(cudaGraphLaunch(graph, side), cudaSuccess);
    EXPECT_EQ(*x, 0);  // nor now, before anybody waits
    ASSERT_EQ(cudaStreamSynchronize(side), cudaSuccess);
    EXPECT_EQ(*x, 10);
    EXPECT_EQ(*y, 11);
  }
  ASSERT_EQ(cudaGraphLaunch(graph, side), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);  // what is queued still runs
  EXPECT_EQ(cudaStreamSynchronize(side), cudaSuccess);
}

TEST_F(EmulatedGraphs, KeepTheOrderOfEventsAndShowWhereOneIsForgotten) {
  bool stale = false, fresh = false;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(forked_sum(seed, true), 42) << seed;
    (forked_sum(seed, false) == 1 ? stale : fresh) = true;
  }
  EXPECT_EQ(forked_sum(0, false), 1);
  EXPECT_TRUE(stale);
  EXPECT_TRUE(fresh);
}

TEST_F(EmulatedGraphs, TakePinnedCopiesAndRefusePageableOnes) {
  void* memory = nullptr;
  ASSERT_EQ(cudaMallocHost(&memory, sizeof(int)), cudaSuccess);
  int *pinned = static_cast<int*>(memory), pageable = 7;
  begin();
  ASSERT_EQ(cudaMemcpyAsync(x, pinned, sizeof(int), cudaMemcpyDefault, stream), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(y, 0, sizeof(int), stream), cudaSuccess);
  cudaGraphExec_t graph = finished();
  *pinned = 8;
  *y = 3;
  ASSERT_EQ(cudaGraphLaunch(graph, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(*x, 8);
  EXPECT_EQ(*y, 0);
  EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
  for (const bool to_device : {true, false}) {
    begin();
    EXPECT_EQ(to_device ? cudaMemcpyAsync(x, &pageable, sizeof(int), cudaMemcpyDefault, stream)
                        : cudaMemcpyAsync(&pageable, x, sizeof(int), cudaMemcpyDefault, stream),
              cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(status(), cudaStreamCaptureStatusInvalidated);
    EXPECT_THROW(cuda::launch("store", store, {}, stream, x, 1), Error);
    EXPECT_EQ(spoilt(), cudaErrorStreamCaptureInvalidated);
  }
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(EmulatedGraphs, RefuseWhatCannotBeReplayed) {
  begin();
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(spoilt(), cudaErrorStreamCaptureInvalidated);
  begin();
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(spoilt(), cudaErrorStreamCaptureInvalidated);
  begin();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(spoilt(), cudaErrorStreamCaptureInvalidated);
  begin();
  cudaEvent_t inside = recorded(stream);
  EXPECT_EQ(cudaEventQuery(inside), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventSynchronize(inside), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaGraphExecDestroy(finished()), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(side, inside), cudaErrorCapturedEvent);  // nothing outside ever records it
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
  begin();
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaErrorIllegalState);
  EXPECT_EQ(cudaGraphExecDestroy(finished()), cudaSuccess);
  EXPECT_EQ(spoilt(), cudaErrorIllegalState);  // there is no capture
}

TEST_F(EmulatedGraphs, RefuseEventsThatLeadOutOfTheCapture) {
  cuda::launch("store", store, {}, side, x, 1);
  cudaEvent_t outside = recorded(side);
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(stream, outside), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(spoilt(), cudaErrorStreamCaptureInvalidated);

  begin();
  ASSERT_EQ(cudaStreamBeginCapture(side, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream, recorded(side)), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(spoilt(), cudaErrorStreamCaptureInvalidated);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(side, &graph), cudaErrorStreamCaptureInvalidated);

  begin();
  cudaStreamWaitEvent(side, recorded(stream));
  cuda::launch("store", store, {}, side, x, 1);
  EXPECT_EQ(cudaStreamEndCapture(side, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(spoilt(), cudaErrorStreamCaptureInvalidated);

  begin();
  cudaStreamWaitEvent(side, recorded(stream));
  cuda::launch("store", store, {}, side, x, 1);
  EXPECT_EQ(spoilt(), cudaErrorStreamCaptureUnjoined);
  cuda::launch("store", store, {}, side, x, 2);  // both streams are as before
  EXPECT_EQ(cudaStreamSynchronize(side), cudaSuccess);
  EXPECT_EQ(*x, 2);
}

TEST_F(EmulatedGraphs, LookAtTheModeBeforeAnAllocationSpoilsACapture) {
  void* memory = nullptr;
  for (const cudaStreamCaptureMode mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
    begin(mode);
    EXPECT_EQ(cudaMalloc(&memory, 8), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(spoilt(), cudaErrorStreamCaptureInvalidated);
  }
  begin(cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(cudaMalloc(&memory, 8), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(finished()), cudaSuccess);

  cudaStreamCaptureMode own = cudaStreamCaptureModeRelaxed;
  EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&own), cudaSuccess);
  EXPECT_EQ(own, cudaStreamCaptureModeGlobal);
  begin();
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(finished()), cudaSuccess);
  EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&own), cudaSuccess);

  const auto elsewhere = [] {
    cudaError_t error = cudaSuccess;
    std::thread([&] {
      void* other = nullptr;
      error = cudaMalloc(&other, 8);
    }).join();
    return error;
  };
  begin(cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(elsewhere(), cudaSuccess);
  cudaGraph_t graph = nullptr;
  std::thread([&] { EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureWrongThread); }).join();
  EXPECT_EQ(cudaGraphExecDestroy(finished()), cudaSuccess);
  begin();
  EXPECT_EQ(elsewhere(), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(spoilt(), cudaErrorStreamCaptureInvalidated);
}

}  // namespace
}  // namespace keel::emulation
