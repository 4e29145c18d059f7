// Communicators that do not block: what is in progress, what is in the stream, and what ends it.

#include <atomic>
#include <chrono>

#include "tests/emulation/ranks.h"

namespace keel::emulation {
namespace {

using Floats = std::vector<float>;

class EmulatedNcclProgress : public EmulatedNccl {
 protected:
  static ncclResult_t state_of(ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    return state;
  }
  static ncclResult_t settled(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    while ((state = state_of(comm)) == ncclInProgress) std::this_thread::yield();
    return state;
  }
  static ncclConfig_t unblocked() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return config;
  }
  // Calls f(rank, communicator) in a thread for each rank, with a communicator that does not block.
  template <class F>
  static void on_unblocked(int ranks, const MachineOptions& options, F&& f) {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    on_ranks(ranks, options, [&](Rank& own) {
      ncclConfig_t config = unblocked();
      ncclComm_t comm = nullptr;
      ncclCommInitRankConfig(&comm, own.ranks, id, own.rank, &config);
      EXPECT_EQ(settled(comm), ncclSuccess);
      f(own, comm);
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    });
  }
};

TEST_F(EmulatedNcclProgress, OneIsFormedWithoutAWaitForTheOtherRanks) {
  Machine::get().reset({.devices = 1});
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclConfig_t config = unblocked();
  ncclComm_t first = nullptr, second = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&first, 2, id, 0, &config), ncclInProgress);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(state_of(first), ncclInProgress);
  int count = 0;
  EXPECT_EQ(ncclCommCount(first, &count), ncclInvalidArgument) << "nothing may be asked of it before";
  EXPECT_EQ(ncclCommInitRankConfig(&second, 2, id, 1, &config), ncclSuccess);
  EXPECT_EQ(state_of(first), ncclSuccess);
  EXPECT_EQ(ncclCommCount(first, &count), ncclSuccess);
  EXPECT_EQ(count, 2);
  for (ncclComm_t comm : {first, second}) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(EmulatedNcclProgress, AbortEndsTheFormationForAll) {
  Machine::get().reset({.devices = 1});
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclConfig_t config = unblocked();
  ncclComm_t first = nullptr, second = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&first, 3, id, 0, &config), ncclInProgress);
  EXPECT_EQ(ncclCommInitRankConfig(&second, 3, id, 1, &config), ncclInProgress);
  EXPECT_EQ(ncclCommAbort(first), ncclSuccess);
  EXPECT_EQ(state_of(second), ncclSystemError);
  EXPECT_STREQ(ncclGetLastError(second), "rank 0 aborted what it was to form");
  EXPECT_EQ(ncclCommAbort(second), ncclSuccess);
}

TEST_F(EmulatedNcclProgress, WorkIsNotInTheStreamBeforeItsCallIsOver) {
  on_unblocked(2, {.devices = 2, .nccl_questions = 3}, [](Rank& own, ncclComm_t comm) {
    float *x = own.array(Floats{1}), *y = own.array(Floats{5});
    EXPECT_EQ(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, comm, own.stream), ncclInProgress);
    EXPECT_EQ(cudaStreamQuery(own.stream), cudaSuccess) << "it is empty";
    EXPECT_EQ(ncclAllReduce(y, y, 1, ncclFloat, ncclSum, comm, own.stream), ncclInvalidArgument);
    EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("before its last call is over"), std::string::npos);
    for (int question = 0; question < 3; ++question) EXPECT_EQ(state_of(comm), ncclInProgress);
    EXPECT_EQ(state_of(comm), ncclSuccess);
    EXPECT_EQ(own.fetch(x, 1), Floats{2});

    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(x, 1, ncclFloat, 1 - own.rank, comm, own.stream), ncclSuccess);
    EXPECT_EQ(ncclRecv(y, 1, ncclFloat, 1 - own.rank, comm, own.stream), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    EXPECT_EQ(own.fetch(y, 1), Floats{5}) << "what it was";
    EXPECT_EQ(settled(comm), ncclSuccess);
    EXPECT_EQ(own.fetch(y, 1), Floats{2});
  });
}

TEST_F(EmulatedNcclProgress, SeedsDrawHowLongACallTakes) {
  bool at_once = false, later = false;
  for (std::uint64_t seed = 1; seed < 4; ++seed)
    on_unblocked(1, {.devices = 1, .drain_seed = seed}, [&](Rank& own, ncclComm_t comm) {
      float* x = own.array(Floats{1});
      for (int i = 0; i < 10; ++i) {
        (ncclAllReduce(x, x, 1, ncclFloat, ncclSum, comm, own.stream) == ncclSuccess ? at_once : later) = true;
        EXPECT_EQ(settled(comm), ncclSuccess);
      }
      EXPECT_EQ(own.wait(), "");
    });
  EXPECT_TRUE(at_once);
  EXPECT_TRUE(later);
}

TEST_F(EmulatedNcclProgress, APartIsThereOnceTheWholeHasSucceeded) {
  on_unblocked(2, {.devices = 2, .nccl_questions = 2}, [](Rank& own, ncclComm_t comm) {
    ncclComm_t part = nullptr;
    EXPECT_EQ(ncclCommSplit(comm, 0, -own.rank, &part, nullptr), ncclInProgress);
    EXPECT_EQ(part, nullptr);
    EXPECT_EQ(settled(comm), ncclSuccess);
    ASSERT_NE(part, nullptr);
    int rank = -1;
    EXPECT_EQ(ncclCommUserRank(part, &rank), ncclSuccess);
    EXPECT_EQ(rank, 1 - own.rank);
    float* x = own.array(Floats{3});
    EXPECT_EQ(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, part, own.stream), ncclInProgress) << "as the whole does";
    EXPECT_EQ(settled(part), ncclSuccess);
    EXPECT_EQ(ncclCommFinalize(part), ncclInProgress);
    EXPECT_EQ(settled(part), ncclSuccess);
    EXPECT_EQ(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, part, own.stream), ncclInvalidUsage);
    EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
    EXPECT_EQ(own.fetch(x, 1), Floats{6});
  });
}

TEST_F(EmulatedNcclProgress, AnAbortIsRefusedWhileAnotherThreadIsInsideACall) {
  on_ranks(2, {.devices = 2, .patience = std::chrono::milliseconds(400)}, [](Rank& own) {
    if (own.rank == 1) {  // never splits
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return;
    }
    std::thread watch([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_EQ(ncclCommAbort(own.comm), ncclInvalidUsage);
      EXPECT_STREQ(ncclGetLastError(nullptr), "another thread is inside a call with the communicator");
    });
    ncclComm_t part = nullptr;
    EXPECT_EQ(ncclCommSplit(own.comm, 0, 0, &part, nullptr), ncclSystemError);
    watch.join();
  });
}

TEST_F(EmulatedNcclProgress, AbortsAreForEachRankToMakeWhereNcclDoesNotTell) {
  std::atomic<bool> aborted = false;
  on_ranks(2, {.devices = 2, .nccl_tells_aborts = false}, [&](Rank& own) {
    float* x = own.array(Floats{1});
    ASSERT_EQ(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, own.comm, own.stream), ncclSuccess);
    EXPECT_EQ(own.wait(), "");
    if (own.rank == 1) {
      EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
      own.comm = nullptr;
      aborted = true;
      return;
    }
    while (!aborted) std::this_thread::yield();
    ncclResult_t error = ncclSystemError;
    EXPECT_EQ(ncclCommGetAsyncError(own.comm, &error), ncclSuccess);
    EXPECT_EQ(error, ncclSuccess);
    ASSERT_EQ(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, own.comm, own.stream), ncclSuccess);
    std::thread watch([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
    });
    EXPECT_EQ(own.wait(), "");
    watch.join();
    own.comm = nullptr;
  });
}

}  // namespace
}  // namespace keel::emulation
