// all_to_all_v: parts of any lengths between every two ranks, over every transport.

#include <gtest/gtest.h>

#include <numeric>

#include "keel/dist/comm/decorators.h"
#include "keel/dist/comm/node_memory.h"
#include "keel/runtime/random.h"
#include "tests/dist/comm/heard.h"
#include "tests/dist/comm/ranks.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr DType kEveryType[] = {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u8};

// How many elements `from` sends to `to`: a matrix that every rank knows.
using CountOf = std::function<std::int64_t(int from, int to)>;

// Of about this size, every third pair nothing.
CountOf uneven(std::int64_t size, std::uint64_t seed) {
  return [=](int from, int to) -> std::int64_t {
    const std::uint64_t bits = mix64(seed * 1'000 + static_cast<std::uint64_t>(from * 31 + to));
    return bits % 3 == 0 ? 0 : static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(2 * size + 1));
  };
}

std::vector<std::int64_t> outgoing_of(int rank, int n, const CountOf& count) {
  std::vector<std::int64_t> counts;
  for (int r = 0; r < n; ++r) counts.push_back(count(rank, r));
  return counts;
}
std::vector<std::int64_t> incoming_of(int rank, int n, const CountOf& count) {
  std::vector<std::int64_t> counts;
  for (int r = 0; r < n; ++r) counts.push_back(count(r, rank));
  return counts;
}
std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}
// The i-th number that `from` sends to `to`, exact in every dtype.
double number(int from, int to, std::int64_t i) { return static_cast<double>((from * 5 + to * 3 + i) % 101); }

Tensor given(const Context& context, int rank, int n, const CountOf& count, DType dtype) {
  std::vector<double> values;
  for (int to = 0; to < n; ++to)
    for (std::int64_t i = 0; i < count(rank, to); ++i) values.push_back(number(rank, to, i));
  return tensor_of(context, values, {static_cast<std::int64_t>(values.size())}, dtype);
}
std::vector<double> expected(int rank, int n, const CountOf& count) {
  std::vector<double> values;
  for (int from = 0; from < n; ++from)
    for (std::int64_t i = 0; i < count(from, rank); ++i) values.push_back(number(from, rank, i));
  return values;
}

void exchange(Communicator& comm, const CountOf& count, DType dtype) {
  SCOPED_TRACE(concat("rank ", comm.rank(), " of ", comm.size(), ", ", dtype));
  const Context context = testing::context(1);
  const int n = comm.size(), rank = comm.rank();
  const Tensor in = given(context, rank, n, count, dtype);
  const std::vector<std::int64_t> incoming = incoming_of(rank, n, count);
  const Tensor out = zeros(context, {sum_of(incoming)}, dtype);
  const Traffic before = comm.traffic();
  comm.all_to_all_v(in, out, outgoing_of(rank, n, count), incoming).wait();
  EXPECT_EQ(doubles(out), expected(rank, n, count));
  const std::int64_t others = in.numel() - count(rank, rank);
  EXPECT_EQ(comm.traffic().sent() - before.sent(), others * static_cast<std::int64_t>(size_of(dtype)));
}

TEST(AllToAllV, MovesPartsOfAnyLengthsAndCountsTheirBytes) {
  for (int n = 1; n <= 5; ++n)
    for (const bool shared : {true, false})
      on_ranks(n,
               [&](Communicator& comm) {
                 for (const DType dtype : kEveryType)
                   for (const std::int64_t size : {0, 1, 7, 300, 4'000})
                     exchange(comm, uneven(size, static_cast<std::uint64_t>(n + size)), dtype);
               },
               {.shared_memory = shared});
}

// In pieces, where ranks have no memory in common; one pair has more than all others together.
TEST(AllToAllV, OfMoreThanABufferOfTheNode) {
  constexpr auto kBuffer = static_cast<std::int64_t>(NodeArea::kBuffer);
  for (const int n : {2, 3, 5})
    on_ranks(n, [&](Communicator& comm) {
      exchange(
          comm, [&](int from, int to) { return from == 0 && to == n - 1 ? 2 * kBuffer + 3 : (from + 2 * to) * 5; },
          DType::u8);
    });
}

TEST(AllToAllV, FollowsEachOtherUnderWayAndAmongOthersInAnyOrderOfWaiting) {
  for (const int n : {2, 3, 4})
    on_ranks(n, [&](Communicator& direct) {
      DelayedCommunicator comm(direct, 5, std::chrono::microseconds(300));
      const Context context = testing::context(1);
      std::vector<Tensor> gotten, sums;
      std::vector<Work> works;
      constexpr std::int64_t kSizes[] = {3, 900, 0, 20'000};
      for (int i = 0; i < 24; ++i) {
        const CountOf count = uneven(kSizes[i % 4], static_cast<std::uint64_t>(i));
        const std::vector<std::int64_t> incoming = incoming_of(comm.rank(), n, count);
        gotten.push_back(zeros(context, {sum_of(incoming)}, DType::i32));
        works.push_back(comm.all_to_all_v(given(context, comm.rank(), n, count, DType::i32), gotten.back(),
                                          outgoing_of(comm.rank(), n, count), incoming));
        sums.push_back(tensor_of(context, {1.0}, {1}));
        works.push_back(comm.all_reduce(sums.back()));
      }
      for (std::size_t i = 0; i < works.size(); ++i) works[(i * 7 + 3) % works.size()].wait();
      for (int i = 0; i < 24; ++i) {
        EXPECT_EQ(doubles(gotten[static_cast<std::size_t>(i)]),
                  expected(comm.rank(), n, uneven(kSizes[i % 4], static_cast<std::uint64_t>(i))));
        EXPECT_EQ(sums[static_cast<std::size_t>(i)].item(), n);
      }
    });
}

// What one pair disagrees about is an error of all ranks, before anything is written.
TEST(AllToAllV, WhosePairsDisagreeIsRefusedOnEveryRankByName) {
  for (const int n : {2, 3, 5})
    for (const bool shared : {true, false})
      for (const std::int64_t size : {10, 3'000}) {
        const auto told =
            messages(n,
                     [&](Communicator& comm) {
                       const Context context = testing::context(1);
                       const auto ranks = static_cast<std::size_t>(n);
                       std::vector<std::int64_t> sends(ranks, size), receives(ranks, size);
                       if (comm.rank() == 0) sends[1] += 2;
                       const Tensor out = tensor_of(context, std::vector<double>(static_cast<std::size_t>(n * size), 7),
                                                    {n * size}, DType::u8);
                       const Tensor in = zeros(context, {sum_of(sends)}, DType::u8);
                       try {
                         comm.all_to_all_v(in, out, sends, receives).wait();
                       } catch (const Error& error) {
                         EXPECT_EQ(error.kind(), ErrorKind::peer);
                         EXPECT_EQ(doubles(out), std::vector<double>(static_cast<std::size_t>(n * size), 7));
                         throw;
                       }
                     },
                     {.shared_memory = shared});
        for (const std::string& text : told)
          EXPECT_TRUE(is_heard(text,
                               "ranks send each other other counts than they receive in all_to_all_v, number 0: "
                               "rank 0 sends rank 1 2 more than that receives"));
      }
}

TEST(AllToAllV, IsNotMixedUpWithOtherCollectives) {
  KEEL_NEEDS_RANKS(3);
  for (const bool shared : {true, false}) {
    const auto told = messages(3,
                               [&](Communicator& comm) {
                                 const Context context = testing::context(1);
                                 const Tensor in = zeros(context, {6}), out = zeros(context, {6});
                                 if (comm.rank() == 1) comm.all_to_all(in, out).wait();
                                 else comm.all_to_all_v(in, out, {2, 2, 2}, {2, 2, 2}).wait();
                               },
                               {.shared_memory = shared});
    for (const std::string& text : told)
      EXPECT_TRUE(is_heard(text,
                           "ranks ask for different collectives as number 0: rank 0 for all_to_all_v of f32, "
                           "rank 1 for all_to_all of 6 f32"));
  }
}

TEST(AllToAllV, EndsForAllWhereARankFailsBeforeIt) {
  KEEL_NEEDS_RANKS(3);
  for (const bool shared : {true, false}) {
    const auto told = messages(3,
                               [&](Communicator& comm) {
                                 if (comm.rank() == 1) throw Error("out of ink");
                                 exchange(
                                     comm, [](int, int) { return 5'000; }, DType::f32);
                               },
                               {.shared_memory = shared});
    EXPECT_EQ(told[1], "out of ink");
    for (const std::size_t r : {0, 2}) EXPECT_TRUE(is_heard(told[r], "rank 1 failed: out of ink"));
  }
}

// What lies behind the counts' end is not read.
TEST(Counts, ThatAreTooFewGiveTheLastRankNothing) {
  KEEL_NEEDS_RANKS(2);
  on_ranks(2, [](Communicator& comm) {
    const Tensor own = zeros(testing::context(1), {4}), all = zeros(testing::context(1), {8});
    for (const std::int64_t behind : {777, 4}) {
      if (comm.rank() == 0) continue;
      Counts gathered = {4, behind}, scattered = gathered;
      gathered.pop_back();
      scattered.pop_back();
      EXPECT_NE(error_of([&] {
                  comm.gather(own, all, 0, std::move(gathered));
                }).find("gather on rank 1: the counts give it 0 elements, got "),
                std::string::npos);
      EXPECT_NE(error_of([&] {
                  comm.scatter(all, own, 0, std::move(scattered));
                }).find("scatter on rank 1: the counts give it 0 elements, got "),
                std::string::npos);
    }
    comm.barrier();
  });
}

TEST(AllToAllV, RefusesCountsThatDoNotFitItsTensors) {
  KEEL_NEEDS_RANKS(2);
  on_ranks(2, [](Communicator& comm) {
    const Context context = testing::context(1);
    const Tensor four = zeros(context, {4});
    EXPECT_THROW(comm.all_to_all_v(four, four, {4}, {2, 2}), Error);
    EXPECT_THROW(comm.all_to_all_v(four, four, {2, 2}, {2, 3}), Error);
    EXPECT_THROW(comm.all_to_all_v(four, four, {5, -1}, {2, 2}), Error);
    if (comm.rank() == 0) { EXPECT_THROW(comm.all_to_all_v(four, four, {1, 3}, {2, 2}), Error); }
    EXPECT_THROW(comm.all_to_all_v(four, zeros(context, {4}, DType::f64), {2, 2}, {2, 2}), Error);
    comm.barrier();
  });
}

}  // namespace
}  // namespace keel
