#pragma once
// Ranks as threads, each with a device, a stream and memory, for tests of the emulated NCCL.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "keel/runtime/cuda/launch.h"
#include "keel/runtime/emulation/nccl.h"

namespace keel::emulation {

class EmulatedNccl : public ::testing::Test {
 protected:
  void TearDown() override {
    Machine::get().reset({});
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  }
};

// 1, 2, 3, ... times rank + 1.
template <class T = float>
std::vector<T> numbers(int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = T(static_cast<float>(i + 1) * static_cast<float>(rank + 1));
  return values;
}

// What one rank has.
class Rank {
 public:
  Rank(int rank, int ranks, int device, ncclUniqueId id) : rank(rank), ranks(ranks), device(device) {
    EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
    EXPECT_EQ(ncclCommInitRank(&comm, ranks, id, rank), ncclSuccess) << ncclGetLastError(nullptr);
  }
  ~Rank() {
    if (comm != nullptr) { EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess); }
    for (void* memory : memory_) cudaFree(memory);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  template <class T>
  T* array(const std::vector<T>& values) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, values.size() * sizeof(T)), cudaSuccess);
    memory_.push_back(memory);
    EXPECT_EQ(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
    return static_cast<T*>(memory);
  }
  // The device's numbers after the work of this rank's stream.
  template <class T>
  std::vector<T> fetch(const T* memory, std::size_t count) {
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess) << cudaGetErrorString(cudaErrorLaunchFailure);
    std::vector<T> values(count);
    EXPECT_EQ(cudaMemcpy(values.data(), memory, count * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }
  // What the wait for the stream answers; "" for nothing.
  std::string wait() const {
    const cudaError_t error = cudaStreamSynchronize(stream);
    return error == cudaSuccess ? "" : cudaGetErrorString(error);
  }

  const int rank, ranks, device;
  cudaStream_t stream = nullptr;
  ncclComm_t comm = nullptr;

 private:
  std::vector<void*> memory_;
};

// Calls f(Rank&) in a thread for each rank; rank r has device r modulo `devices`.
template <class F>
void on_ranks(int ranks, const MachineOptions& options, F&& f) {
  Machine::get().reset(options);
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      Rank rank(r, ranks, r % options.devices, id);
      f(rank);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace keel::emulation
