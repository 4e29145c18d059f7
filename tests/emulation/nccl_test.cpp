// The emulated NCCL: numbers, order, groups.

#include <array>
#include <chrono>

#include "keel/runtime/half.h"
#include "tests/emulation/ranks.h"

namespace keel::emulation {
namespace {

using Floats = std::vector<float>;

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
  const std::size_t triangle = n * (n + 1) / 2;  // 1 + 2 + ... + n
  const auto all = static_cast<float>(triangle);
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
