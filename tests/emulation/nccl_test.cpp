// The emulated NCCL: numbers, order, groups, and what goes wrong.

#include <array>
#include <chrono>
#include <mutex>
#include <numeric>

#include "keel/runtime/half.h"
#include "tests/emulation/ranks.h"

namespace keel::emulation {
namespace {

using Floats = std::vector<float>;

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

Floats times(float factor, Floats values) {
  for (float& value : values) value *= factor;
  return values;
}

Floats slice(const Floats& values, std::size_t first, std::size_t count) {
  return {values.begin() + static_cast<std::ptrdiff_t>(first),
          values.begin() + static_cast<std::ptrdiff_t>(first + count)};
}

void check_collectives(Rank& own) {
  const auto n = static_cast<std::size_t>(own.ranks), r = static_cast<std::size_t>(own.rank);
  const std::size_t count = 3 * n;
  const float all = static_cast<float>(n * (n + 1) / 2);  // 1 + 2 + ... + n
  const float* x = own.array(numbers(own.rank, count));
  float *sum = own.array(Floats(count)), *part = own.array(Floats(3)), *whole = own.array(Floats(3 * n));
  float *from_one = own.array(Floats(count)), *at_last = own.array(Floats(count));
  const int last = own.ranks - 1;
  ASSERT_EQ(ncclAllReduce(x, sum, count, ncclFloat, ncclSum, own.comm, own.stream), ncclSuccess);
  ASSERT_EQ(ncclReduceScatter(x, part, 3, ncclFloat, ncclSum, own.comm, own.stream), ncclSuccess);
  ASSERT_EQ(ncclAllGather(part, whole, 3, ncclFloat, own.comm, own.stream), ncclSuccess);
  ASSERT_EQ(ncclBroadcast(x, from_one, count, ncclFloat, 1, own.comm, own.stream), ncclSuccess);
  ASSERT_EQ(ncclReduce(x, at_last, count, ncclFloat, ncclSum, last, own.comm, own.stream), ncclSuccess);
  const Floats total = times(all, numbers(0, count));
  EXPECT_EQ(own.fetch(sum, count), total);
  EXPECT_EQ(own.fetch(part, 3), slice(total, 3 * r, 3));
  EXPECT_EQ(own.fetch(whole, 3 * n), total);
  EXPECT_EQ(own.fetch(from_one, count), numbers(1, count));
  EXPECT_EQ(own.fetch(at_last, count), own.rank == last ? total : Floats(count));
}

TEST_F(EmulatedNccl, CollectivesGiveTheSameForEveryNumberOfRanksAndDevicesAndEverySeed) {
  for (const int ranks : {2, 3, 4})
    for (const int devices : {1, ranks})
      for (const std::uint64_t seed : {0, 1, 2, 3})
        on_ranks(ranks, {.devices = devices, .drain_seed = seed}, check_collectives);
}

TEST_F(EmulatedNccl, CollectivesWorkInPlace) {
  on_ranks(3, {.devices = 3}, [](Rank& own) {
    float* x = own.array(numbers(own.rank, 6));
    ASSERT_EQ(ncclAllReduce(x, x, 6, ncclFloat, ncclSum, own.comm, own.stream), ncclSuccess);
    EXPECT_EQ(own.fetch(x, 6), times(6, numbers(0, 6)));
    float* y = own.array(numbers(own.rank, 6));
    float* piece = y + 2 * own.rank;
    ASSERT_EQ(ncclReduceScatter(y, piece, 2, ncclFloat, ncclSum, own.comm, own.stream), ncclSuccess);
    EXPECT_EQ(own.fetch(piece, 2), times(6, slice(numbers(0, 6), 2 * static_cast<std::size_t>(own.rank), 2)));
    ASSERT_EQ(ncclAllGather(piece, y, 2, ncclFloat, own.comm, own.stream), ncclSuccess);
    EXPECT_EQ(own.fetch(y, 6), times(6, numbers(0, 6)));
    ASSERT_EQ(ncclBroadcast(x, x, 6, ncclFloat, 2, own.comm, own.stream), ncclSuccess);
    ASSERT_EQ(ncclReduce(x, x, 6, ncclFloat, ncclMax, 0, own.comm, own.stream), ncclSuccess);
    EXPECT_EQ(own.fetch(x, 6), times(6, numbers(0, 6)));
  });
}

// Small whole numbers are exact in every type; ranks hold 2, 4, 6, 8, and so on.
template <class T>
void check_operators(Rank& own, ncclDataType_t type) {
  std::vector<T> mine(2);
  mine[0] = T(static_cast<float>(2 * (own.rank + 1)));
  mine[1] = T(static_cast<float>(8 - own.rank));
  const T* x = own.array(mine);
  struct Row {
    ncclRedOp_t op;
    float first, second;
  };
  const Row rows[] = {{ncclSum, 6, 15}, {ncclProd, 8, 56}, {ncclMax, 4, 8}, {ncclMin, 2, 7}};
  for (const Row& row : rows) {
    T* y = own.array(std::vector<T>(2));
    ASSERT_EQ(ncclAllReduce(x, y, 2, type, row.op, own.comm, own.stream), ncclSuccess);
    const std::vector<T> result = own.fetch(y, 2);
    EXPECT_EQ(static_cast<float>(result[0]), row.first) << type << ' ' << row.op;
    EXPECT_EQ(static_cast<float>(result[1]), row.second) << type << ' ' << row.op;
  }
  T* y = own.array(std::vector<T>(2));
  ASSERT_EQ(ncclAllReduce(x, y, 2, type, ncclAvg, own.comm, own.stream), ncclSuccess);
  const std::vector<T> result = own.fetch(y, 2);
  EXPECT_EQ(static_cast<float>(result[0]), 3.0f) << type;
  EXPECT_EQ(static_cast<float>(result[1]), std::is_integral_v<T> ? 7.0f : 7.5f) << type;
}

TEST_F(EmulatedNccl, KnowsItsTypesAndOperators) {
  on_ranks(2, {.devices = 2}, [](Rank& own) {
    check_operators<float>(own, ncclFloat32);
    check_operators<double>(own, ncclFloat64);
    check_operators<f16>(own, ncclFloat16);
    check_operators<bf16>(own, ncclBfloat16);
    check_operators<std::int32_t>(own, ncclInt32);
    check_operators<std::int64_t>(own, ncclInt64);
    check_operators<std::uint8_t>(own, ncclUint8);
  });
}

TEST_F(EmulatedNccl, RoundsHalfPrecisionAtEveryAddition) {
  on_ranks(3, {.devices = 1}, [](Rank& own) {
    const float mine[] = {256, 1, 1};  // bfloat16 has no 257
    const bf16* x = own.array(std::vector<bf16>{bf16(mine[own.rank])});
    bf16* y = own.array(std::vector<bf16>(1));
    ASSERT_EQ(ncclAllReduce(x, y, 1, ncclBfloat16, ncclSum, own.comm, own.stream), ncclSuccess);
    EXPECT_EQ(static_cast<float>(own.fetch(y, 1)[0]), 256.0f);
  });
}

TEST_F(EmulatedNccl, PassesNumbersAroundARingInAGroup) {
  for (const std::uint64_t seed : {0, 1, 2})
    for (const int ranks : {2, 3, 4})
      on_ranks(ranks, {.devices = 2, .drain_seed = seed}, [](Rank& own) {
        const int next = (own.rank + 1) % own.ranks, previous = (own.rank + own.ranks - 1) % own.ranks;
        const float* x = own.array(numbers(own.rank, 4));
        float* y = own.array(Floats(4));
        for (int repeat = 0; repeat < 3; ++repeat) {
          ASSERT_EQ(ncclGroupStart(), ncclSuccess);
          ASSERT_EQ(ncclSend(x, 4, ncclFloat, next, own.comm, own.stream), ncclSuccess);
          ASSERT_EQ(ncclRecv(y, 4, ncclFloat, previous, own.comm, own.stream), ncclSuccess);
          ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
        }
        EXPECT_EQ(own.fetch(y, 4), numbers(previous, 4));
      });
}

TEST_F(EmulatedNccl, TransfersOfAGroupWaitForTheirOwnPartnersOnly) {
  on_ranks(3, {.devices = 3}, [](Rank& own) {  // 0 -> 1 -> 2, each hop of its own, and one message to oneself
    float *x = own.array(numbers(own.rank, 2)), *y = own.array(Floats(2));
    if (own.rank == 0) ncclSend(x, 2, ncclFloat, 1, own.comm, own.stream);
    if (own.rank == 1) {
      ncclGroupStart();
      ncclRecv(y, 2, ncclFloat, 0, own.comm, own.stream);
      ncclSend(x, 2, ncclFloat, 2, own.comm, own.stream);
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    }
    if (own.rank == 2) ncclRecv(y, 2, ncclFloat, 1, own.comm, own.stream);
    EXPECT_EQ(own.fetch(y, 2), own.rank == 0 ? Floats(2) : numbers(own.rank - 1, 2));
    ncclGroupStart();
    ncclSend(x, 2, ncclFloat, own.rank, own.comm, own.stream);
    ncclRecv(y, 2, ncclFloat, own.rank, own.comm, own.stream);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(own.fetch(y, 2), numbers(own.rank, 2));
  });
}

__global__ void store_number(float* to, float value) { *to = value; }

// The sum over two ranks of numbers that a kernel of another stream writes, with or without the event between.
float sum_of_late_numbers(std::uint64_t seed, bool with_event) {
  float result = 0;
  on_ranks(2, {.devices = 2, .drain_seed = seed}, [&](Rank& own) {
    float* x = own.array(Floats{0});
    cudaStream_t compute = nullptr;
    cudaEvent_t written = nullptr;
    ASSERT_EQ(cudaStreamCreateWithPriority(&compute, cudaStreamNonBlocking, 0), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&written, cudaEventDisableTiming), cudaSuccess);
    cuda::launch("store_number", store_number, {}, compute, x, 1.0f + static_cast<float>(own.rank));
    cudaEventRecord(written, compute);
    if (with_event) cudaStreamWaitEvent(own.stream, written);
    ASSERT_EQ(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, own.comm, own.stream), ncclSuccess);
    const float sum = own.fetch(x, 1)[0];
    if (own.rank == 0) result = sum;
    cudaStreamSynchronize(compute);
    cudaEventDestroy(written);
  });
  return result;
}

TEST_F(EmulatedNccl, ACollectiveComesAfterTheEventsThatItsStreamWaitsFor) {
  for (const std::uint64_t seed : {0, 1, 2, 3, 4}) EXPECT_EQ(sum_of_late_numbers(seed, true), 3) << seed;
  EXPECT_EQ(sum_of_late_numbers(0, false), 0);  // a forgotten event is seen
}

TEST_F(EmulatedNccl, SplitFormsPartsOrderedByKey) {
  on_ranks(4, {.devices = 2}, [](Rank& own) {
    ncclComm_t part = nullptr;
    const int color = own.rank == 3 ? NCCL_SPLIT_NOCOLOR : own.rank % 2;
    ASSERT_EQ(ncclCommSplit(own.comm, color, -own.rank, &part, nullptr), ncclSuccess);
    if (own.rank == 3) {
      EXPECT_EQ(part, nullptr);
      return;
    }
    int count = 0, rank = -1, device = -1;
    ncclCommCount(part, &count);
    ncclCommUserRank(part, &rank);
    ncclCommCuDevice(part, &device);
    EXPECT_EQ(count, own.rank == 1 ? 1 : 2);
    EXPECT_EQ(rank, own.rank == 0 ? 1 : 0);  // rank 2 has the lower key
    EXPECT_EQ(device, own.rank % 2);
    const float* x = own.array(Floats{static_cast<float>(own.rank + 10)});
    float* y = own.array(Floats(2));
    ASSERT_EQ(ncclAllGather(x, y, 1, ncclFloat, part, own.stream), ncclSuccess);
    EXPECT_EQ(own.fetch(y, 2), own.rank == 1 ? (Floats{11, 0}) : (Floats{12, 10}));
    EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
  });
}

TEST_F(EmulatedNccl, OneThreadMayBeAllRanksInAGroup) {
  Machine::get().reset({.devices = 2});
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  std::array<ncclComm_t, 2> comms = {};
  ncclGroupStart();
  for (int rank : {0, 1}) {
    cudaSetDevice(rank);
    ASSERT_EQ(ncclCommInitRank(&comms[static_cast<std::size_t>(rank)], 2, id, rank), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  std::array<float*, 2> x = {};
  ncclGroupStart();
  for (int rank : {0, 1}) {
    cudaSetDevice(rank);
    const auto r = static_cast<std::size_t>(rank);
    ASSERT_EQ(ncclMemAlloc(reinterpret_cast<void**>(&x[r]), sizeof(float)), ncclSuccess);
    *x[r] = 5;
    ASSERT_EQ(ncclAllReduce(x[r], x[r], 1, ncclFloat, ncclSum, comms[r], nullptr), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(*x[0], 5);  // nobody has waited yet
  for (int rank : {1, 0}) {
    cudaSetDevice(rank);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    EXPECT_EQ(*x[static_cast<std::size_t>(rank)], 10);
    EXPECT_EQ(ncclMemFree(x[static_cast<std::size_t>(rank)]), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(comms[static_cast<std::size_t>(rank)]), ncclSuccess);
  }
}

TEST_F(EmulatedNccl, AQueryThatIsRepeatedGetsThere) {
  on_ranks(2, {.devices = 2}, [](Rank& own) {
    float* x = own.array(Floats{1});
    ASSERT_EQ(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, own.comm, own.stream), ncclSuccess);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (cudaStreamQuery(own.stream) == cudaErrorNotReady) ASSERT_LT(std::chrono::steady_clock::now(), end);
    EXPECT_EQ(own.fetch(x, 1), Floats{2});
  });
}

TEST_F(EmulatedNccl, AbortEndsTheOwnWaitAndFailsThatOfOthers) {
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

TEST_F(EmulatedNccl, AWatchingThreadMayAbortForARankThatWaits) {
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

TEST_F(EmulatedNccl, CallsThatDoNotMatchAreAnErrorThatNamesTheRanks) {
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
    on_ranks(3, {.devices = 2}, [&](Rank& own) {
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

TEST_F(EmulatedNccl, WorkBeforeAMismatchIsDone) {
  on_ranks(2, {.devices = 2}, [](Rank& own) {
    float *x = own.array(Floats{1}), *y = own.array(Floats{1, 1});
    ncclAllReduce(x, x, 1, ncclFloat, ncclSum, own.comm, own.stream);
    ncclAllReduce(y, y, static_cast<std::size_t>(own.rank) + 1, ncclFloat, ncclSum, own.comm, own.stream);
    EXPECT_NE(own.wait(), "");
    EXPECT_EQ(own.fetch(x, 1), Floats{2});
  });
}

TEST_F(EmulatedNccl, ARankThatNeverCallsIsNamedWhenPatienceEnds) {
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

TEST_F(EmulatedNccl, RanksThatDoNotFindEachOtherAreNamed) {
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

TEST_F(EmulatedNccl, BadArgumentsAreRefusedAtTheCall) {
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

TEST_F(EmulatedNccl, ACollectiveIsNotCaptured) {
  on_ranks(1, {.devices = 1}, [](Rank& own) {
    float* x = own.array(Floats{1});
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(own.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(ncclAllReduce(x, x, 1, ncclFloat, ncclSum, own.comm, own.stream), ncclInvalidUsage);
    EXPECT_EQ(cudaStreamEndCapture(own.stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  });
}

}  // namespace
}  // namespace keel::emulation
