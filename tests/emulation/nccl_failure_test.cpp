// The emulated NCCL where something goes wrong: ranks that abort, contradict each other or do not come, bad arguments.

#include <chrono>

#include "tests/emulation/ranks.h"

namespace keel::emulation {
namespace {

using Floats = std::vector<float>;

class EmulatedNcclFailure : public EmulatedNccl {};

TEST_F(EmulatedNcclFailure, AbortEndsTheOwnWaitAndFailsThatOfOthers) {
  on_ranks(3, {.devices = 3}, [](Rank& own) {
    float* x = own.array(Floats{1});
    if (own.rank == 0) {  // never calls, so that the others wait
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
      own.comm = nullptr;
      return;
    }
    const ncclResult_t queued = ncclAllReduce(x, x, 1, ncclFloat, ncclSum, own.comm, own.stream);
    if (queued == ncclSuccess) {  // else the abort was there before
      const std::string message = own.wait();
      EXPECT_NE(message.find("rank 0 aborted its communicator of 3 ranks"), std::string::npos) << message;
    }
    ncclResult_t error = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(own.comm, &error), ncclSuccess);
    EXPECT_EQ(error, ncclRemoteError);
    EXPECT_NE(std::string(ncclGetLastError(own.comm)).find("rank 0 aborted"), std::string::npos);
    EXPECT_EQ(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, own.comm, own.stream), ncclRemoteError);
  });
}

TEST_F(EmulatedNcclFailure, AWatchingThreadMayAbortForARankThatWaits) {
  on_ranks(2, {.devices = 2}, [](Rank& own) {
    if (own.rank == 1) return;
    float* x = own.array(Floats{1});
    ASSERT_EQ(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, own.comm, own.stream), ncclSuccess);
    std::thread watch([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
    });
    EXPECT_EQ(own.wait(), "");
    watch.join();
    own.comm = nullptr;
    EXPECT_EQ(own.fetch(x, 1), Floats{1});
  });
}

TEST_F(EmulatedNcclFailure, CallsThatDoNotMatchAreAnErrorThatNamesTheRanks) {
  using Make = std::function<void(Rank&, float*)>;
  struct Row {
    const char* text;
    Make odd, usual;  // of rank 2, and of the others
  };
  const Make usual = [](Rank& r, float* x) { ncclAllReduce(x, x, 4, ncclFloat, ncclSum, r.comm, r.stream); };
  const Make from_0 = [](Rank& r, float* x) { ncclBroadcast(x, x, 4, ncclFloat, 0, r.comm, r.stream); };
  const Row rows[] = {
      {"rank 2: all_reduce of 3 float32, sum",
       [](Rank& r, float* x) { ncclAllReduce(x, x, 3, ncclFloat, ncclSum, r.comm, r.stream); }, usual},
      {"rank 2: all_reduce of 4 int32, sum",
       [](Rank& r, float* x) { ncclAllReduce(x, x, 4, ncclInt, ncclSum, r.comm, r.stream); }, usual},
      {"rank 2: all_reduce of 4 float32, max",
       [](Rank& r, float* x) { ncclAllReduce(x, x, 4, ncclFloat, ncclMax, r.comm, r.stream); }, usual},
      {"rank 2: reduce of 4 float32, sum, to rank 1",
       [](Rank& r, float* x) { ncclReduce(x, x, 4, ncclFloat, ncclSum, 1, r.comm, r.stream); }, usual},
      {"rank 2: broadcast of 4 float32, from rank 1",
       [](Rank& r, float* x) { ncclBroadcast(x, x, 4, ncclFloat, 1, r.comm, r.stream); }, from_0},
  };
  for (const Row& row : rows)
    on_ranks(3, {.devices = 3}, [&](Rank& own) {
      float* x = own.array(numbers(own.rank, 4));
      (own.rank == 2 ? row.odd : row.usual)(own, x);
      const std::string message = own.wait();
      EXPECT_NE(message.find("the ranks of a communicator of 3 do not agree on its collective 1: ranks 0, 1: "),
                std::string::npos)
          << message;
      EXPECT_NE(message.find(row.text), std::string::npos) << message;
      ncclResult_t error = ncclSuccess;
      ncclCommGetAsyncError(own.comm, &error);
      EXPECT_EQ(error, ncclInvalidUsage);
      EXPECT_EQ(own.fetch(x, 4), numbers(own.rank, 4));
    });
  on_ranks(2, {.devices = 1}, [](Rank& own) {
    float* x = own.array(Floats(4));
    if (own.rank == 0) ncclSend(x, 4, ncclFloat, 1, own.comm, own.stream);
    else ncclRecv(x, 3, ncclFloat, 0, own.comm, own.stream);
    const std::string message = own.wait();
    EXPECT_NE(message.find("its transfer 1: rank 0: send of 4 float32, to rank 1; rank 1: receive of 3 float32, from "
                           "rank 0"),
              std::string::npos)
        << message;
  });
}

TEST_F(EmulatedNcclFailure, WorkBeforeAMismatchIsDone) {
  on_ranks(2, {.devices = 2}, [](Rank& own) {
    float *x = own.array(Floats{1}), *y = own.array(Floats{1, 1});
    ncclAllReduce(x, x, 1, ncclFloat, ncclSum, own.comm, own.stream);
    ncclAllReduce(y, y, static_cast<std::size_t>(own.rank) + 1, ncclFloat, ncclSum, own.comm, own.stream);
    EXPECT_NE(own.wait(), "");
    EXPECT_EQ(own.fetch(x, 1), Floats{2});
  });
}

TEST_F(EmulatedNcclFailure, ARankThatNeverCallsIsNamedWhenPatienceEnds) {
  on_ranks(3, {.devices = 3, .patience = std::chrono::milliseconds(150)}, [](Rank& own) {
    if (own.rank == 1) return;
    float* x = own.array(Floats{1});
    ASSERT_EQ(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, own.comm, own.stream), ncclSuccess);
    const std::string message = own.wait();
    EXPECT_NE(message.find("gave up"), std::string::npos) << message;
    const bool first = message.find("all_reduce of 1 float32, sum, number 1 of rank") != std::string::npos &&
                       message.find("of 3, waits for rank 1 to call it") != std::string::npos;
    const bool second = message.find("gave up its all_reduce of 1 float32, sum") != std::string::npos;
    EXPECT_TRUE(first || second) << message;
  });
}

TEST_F(EmulatedNcclFailure, RanksThatDoNotFindEachOtherAreNamed) {
  Machine::get().reset({.patience = std::chrono::milliseconds(50)});
  ncclComm_t comm = nullptr;
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  EXPECT_EQ(ncclCommInitRank(&comm, 3, id, 1), ncclSystemError);
  EXPECT_STREQ(ncclGetLastError(nullptr), "ranks 0, 2 of 3 did not call ncclCommInitRank within 50 ms");
  EXPECT_EQ(ncclCommInitRank(&comm, 3, id, 0), ncclSystemError);  // too late
  ncclGetUniqueId(&id);
  ncclGroupStart();
  ncclCommInitRank(&comm, 3, id, 1);
  ncclCommInitRank(&comm, 2, id, 0);
  EXPECT_EQ(ncclGroupEnd(), ncclSystemError);
  EXPECT_STREQ(ncclGetLastError(nullptr), "rank 0 wants a communicator of 2 ranks, others want 3");
  ncclGetUniqueId(&id);
  ncclGroupStart();
  ncclCommInitRank(&comm, 2, id, 1);
  ncclCommInitRank(&comm, 2, id, 1);
  EXPECT_EQ(ncclGroupEnd(), ncclSystemError);
  EXPECT_STREQ(ncclGetLastError(nullptr), "two threads want to be rank 1 of 2");
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
  id.internal[5] = '?';
  EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidArgument);
}

TEST_F(EmulatedNcclFailure, BadArgumentsAreRefusedAtTheCall) {
  on_ranks(2, {.devices = 2}, [](Rank& own) {
    float *x = own.array(Floats(4)), host[4] = {};
    const auto refused = [&](ncclResult_t result, const char* why) {
      EXPECT_EQ(result, ncclInvalidArgument);
      EXPECT_NE(std::string(ncclGetLastError(nullptr)).find(why), std::string::npos) << ncclGetLastError(nullptr);
    };
    const auto reduce = [&](const void* from, void* to, std::size_t count) {
      return ncclAllReduce(from, to, count, ncclFloat, ncclSum, own.comm, own.stream);
    };
    refused(reduce(host, x, 4), "its send buffer is neither memory of a device nor pinned");
    refused(reduce(x, x, 5), "its send buffer holds 16 bytes of 20");
    refused(reduce(x, x + 1, 3), "its buffers overlap");
    refused(ncclBroadcast(x, x, 4, ncclFloat, 2, own.comm, own.stream), "there is no rank 2 of 2");
    refused(ncclAllReduce(x, x, 4, static_cast<ncclDataType_t>(3), ncclSum, own.comm, own.stream), "type 3");
    refused(ncclAllReduce(x, x, 4, ncclFloat, static_cast<ncclRedOp_t>(5), own.comm, own.stream), "operator 5");
    refused(ncclAllReduce(x, x, 4, ncclFloat, ncclSum, reinterpret_cast<ncclComm_t>(host), own.stream),
            "not a communicator");
    EXPECT_EQ(cudaSetDevice(1 - own.rank), cudaSuccess);
    float* elsewhere = own.array(Floats(4));
    refused(reduce(elsewhere, x, 4), "the rank's device is emulated:");
    cudaStream_t other = nullptr;
    cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, 0);
    refused(ncclAllReduce(x, x, 4, ncclFloat, ncclSum, own.comm, other), "the stream belongs to emulated:");
    EXPECT_EQ(cudaSetDevice(own.rank), cudaSuccess);

    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    ncclGroupStart();  // a refused call undoes its group
    EXPECT_EQ(reduce(x, x, 4), ncclSuccess);
    EXPECT_EQ(reduce(x, x, 5), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_EQ(cudaStreamQuery(own.stream), cudaSuccess);
    EXPECT_EQ(reduce(x, x, 4), ncclSuccess);
    EXPECT_EQ(own.wait(), "");
  });
}

}  // namespace
}  // namespace keel::emulation
