// Collectives among the ranks of any transport: results, bytes, and what happens when ranks disagree.

#include "keel/dist/comm/communicator.h"

#include <gtest/gtest.h>

#include <random>

#include "keel/dist/comm/algorithms.h"
#include "keel/dist/comm/schedule.h"
#include "tests/dist/comm/ranks.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

// What rank r brings: whole numbers, so that sums are exact in any order and dtype.
std::vector<double> brought(int r, std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>((r + 1) * (i % 5) % 7));
  return values;
}
std::vector<double> sum_of_all(int n, std::int64_t count) {
  std::vector<double> sums(static_cast<std::size_t>(count));
  for (int r = 0; r < n; ++r) {
    const std::vector<double> values = brought(r, count);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
  }
  return sums;
}
std::vector<double> cut(const std::vector<double>& values, Span span) {
  return {values.begin() + span.begin, values.begin() + span.end};
}

class Collectives : public ::testing::TestWithParam<const Algorithm*> {
 protected:
  CommunicatorOptions options_ = {.algorithm = std::string(GetParam()->name)};
};

TEST_P(Collectives, GiveExactSumsForAnyRanksAndCounts) {
  for (int n = 1; n <= 9; ++n) {
    on_ranks(
        n,
        [&](Communicator& comm) {
          const Context context = testing::context(1);
          for (const std::int64_t count : {0, 1, n - 1, n, n + 1, 1'009}) {
            for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i64}) {
              const Tensor x = tensor_of(context, brought(comm.rank(), count), {count}, dtype);
              const Span shard = part({0, count}, n, comm.rank());
              const Tensor mine = zeros(context, {shard.count()}, dtype);
              const Tensor all = zeros(context, {count}, dtype);
              comm.reduce_scatter(x, mine).wait();
              comm.all_gather(mine, all).wait();
              comm.all_reduce(x).wait();
              EXPECT_EQ(doubles(mine), cut(sum_of_all(n, count), shard));
              EXPECT_EQ(doubles(all), sum_of_all(n, count));
              EXPECT_EQ(doubles(x), sum_of_all(n, count));
            }
          }
        },
        options_);
  }
}

TEST_P(Collectives, GiveMaximaAndMinima) {
  KEEL_NEEDS_RANKS(5);
  on_ranks(
      5,
      [&](Communicator& comm) {
        const Context context = testing::context(1);
        const Tensor x = uniform_tensor(context, {37}, static_cast<std::uint64_t>(comm.rank()));
        const Tensor y = uniform_tensor(context, {37}, static_cast<std::uint64_t>(comm.rank()));
        comm.all_reduce(x, CombineOp::maximum).wait();
        comm.all_reduce(y, CombineOp::minimum).wait();
        std::vector<double> largest(37, -2), smallest(37, 2);
        for (std::uint64_t r = 0; r < 5; ++r) {
          const std::vector<double> values = doubles(uniform_tensor(context, {37}, r));
          for (std::size_t i = 0; i < 37; ++i) {
            largest[i] = std::max(largest[i], values[i]);
            smallest[i] = std::min(smallest[i], values[i]);
          }
        }
        EXPECT_EQ(doubles(x), largest);
        EXPECT_EQ(doubles(y), smallest);
      },
      options_);
}

TEST_P(Collectives, GiveMeansOfTheSumsWhereTheyAreAsked) {
  for (const int n : {1, 3, 4})
    on_ranks(
        n,
        [&](Communicator& comm) {
          const Context context = testing::context(1);
          const std::int64_t count = 3 * n + 1;
          std::vector<double> means = sum_of_all(n, count);
          for (double& each : means) each /= n;
          means = doubles(tensor_of(context, means, {count}));
          const Tensor x = tensor_of(context, brought(comm.rank(), count), {count}), y = zeros(context, {count});
          const Span shard = part({0, count}, n, comm.rank());
          const Tensor mine = zeros(context, {shard.count()});
          comm.reduce_scatter(x, mine, CombineOp::mean).wait();
          comm.reduce(x, y, n - 1, CombineOp::mean).wait();
          comm.all_reduce(x, CombineOp::mean).wait();
          EXPECT_EQ(doubles(mine), cut(means, shard));
          EXPECT_EQ(doubles(y), comm.rank() == n - 1 ? means : std::vector<double>(means.size()));
          EXPECT_EQ(doubles(x), means);
          const Tensor told = tensor_of(context, {1.0 + comm.rank()}, {1});
          comm.broadcast(told, 0).wait();
          EXPECT_EQ(told.item(), 1) << "nothing is divided";
        },
        options_);
}

// Also of few numbers, which a root might add in another order.
TEST_P(Collectives, GiveARootTheBitsThatAllWouldGet) {
  for (const int n : {3, 4, 5})
    on_ranks(
        n,
        [&](Communicator& comm) {
          const Context context = testing::context(1);
          for (int root = 0; root < n; ++root) {
            const Tensor x = uniform_tensor(context, {37}, static_cast<std::uint64_t>(comm.rank())),
                         y = zeros(context, {37});
            comm.reduce(x, y, root).wait();
            comm.all_reduce(x).wait();
            if (comm.rank() == root) { EXPECT_EQ(doubles(y), doubles(x)); }
          }
        },
        options_);
}

TEST_P(Collectives, GiveTheSameBitsOnEveryRankAndInEveryRun) {
  for (const int n : {3, 4, 8}) {
    std::vector<double> first;
    for (int run = 0; run < 2; ++run) {
      const auto all = results(
          n,
          [](Communicator& comm) {
            const Tensor x = uniform_tensor(testing::context(1), {10'007}, static_cast<std::uint64_t>(comm.rank()));
            comm.all_reduce(x).wait();
            return doubles(x);
          },
          options_);
      if (!all.empty() && first.empty()) first = all.front();
      for (const auto& result : all) EXPECT_TRUE(result == first) << n << " ranks";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Collectives, ::testing::ValuesIn(algorithms().begin(), algorithms().end()),
                         [](const auto& info) { return std::string(info.param->name); });

// The order that stages of sharding rest on: an fp32 sum by rank, rounded once, however the tensor is cut.
TEST(OrderedSum, IsOneFp32SumByRankForAnyBucket) {
  for (const int n : {2, 3, 4, 8}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      constexpr std::int64_t kCount = 5'003;
      std::vector<float> sums;
      for (int r = 0; r < n; ++r) {
        const auto values =
            doubles(uniform_tensor(testing::context(1), {kCount}, static_cast<std::uint64_t>(r), dtype));
        sums.resize(values.size());
        for (std::size_t i = 0; i < values.size(); ++i)
          sums[i] = r == 0 ? static_cast<float>(values[i]) : sums[i] + static_cast<float>(values[i]);
      }
      const std::vector<double> expected =
          doubles(tensor_of(testing::context(1), std::vector<double>(sums.begin(), sums.end()), {kCount}, dtype));
      for (const std::int64_t bucket : {std::int64_t{64}, std::int64_t{1'000}, kCount}) {
        on_ranks(n, [&](Communicator& comm) {
          const Tensor x =
              uniform_tensor(testing::context(1), {kCount}, static_cast<std::uint64_t>(comm.rank()), dtype);
          std::vector<Work> works;
          for (std::int64_t at = 0; at < kCount; at += bucket)
            works.push_back(comm.all_reduce(x.slice(0, at, std::min(kCount, at + bucket))));
          for (const Work& work : works) work.wait();
          EXPECT_TRUE(doubles(x) == expected) << n << " ranks, " << dtype << ", buckets of " << bucket;
        });
      }
    }
  }
}

TEST(Communicator, BroadcastsFromAnyRoot) {
  for (const int n : {1, 2, 3, 5, 8}) {
    on_ranks(n, [&](Communicator& comm) {
      const Context context = testing::context(1);
      for (const std::int64_t count : {0, 1, 1'000, 100'003}) {
        for (int root = 0; root < n; ++root) {
          const Tensor x = uniform_tensor(context, {count}, static_cast<std::uint64_t>(comm.rank()));
          comm.broadcast(x, root).wait();
          EXPECT_TRUE(doubles(x) == doubles(uniform_tensor(context, {count}, static_cast<std::uint64_t>(root))));
        }
      }
    });
  }
}

TEST(Communicator, TransposesByAllToAll) {
  KEEL_NEEDS_RANKS(3);
  on_ranks(3, [](Communicator& comm) {
    const Context context = testing::context(1);
    const double r = comm.rank();
    const Tensor in = tensor_of(context, {10 * r, 10 * r + 1, 10 * r + 2}, {3}), out = empty(context, {3});
    comm.all_to_all(in, out).wait();
    EXPECT_EQ(doubles(out), (std::vector<double>{r, 10 + r, 20 + r}));
  });
}

TEST(Communicator, TakesATensorOfAnyShapeForItsNumbersInARow) {
  KEEL_NEEDS_RANKS(3);
  for (const bool shared : {true, false})
    on_ranks(3,
             [](Communicator& comm) {
               const Context context = testing::context(1);
               const auto shaped = [&](const Dims& shape) {
                 const auto count = static_cast<std::int64_t>(empty(context, shape).numel());
                 return tensor_of(context, brought(comm.rank(), count), shape);
               };
               const std::vector<double> sums = sum_of_all(3, 12);
               const Span shard = part({0, 12}, 3, comm.rank());
               const Tensor x = shaped({3, 4}), mine = zeros(context, {2, 2}), all = zeros(context, {2, 3, 2});
               comm.reduce_scatter(shaped({4, 3}), mine).wait();
               comm.all_gather(mine, all).wait();
               comm.all_reduce(x).wait();
               EXPECT_EQ(doubles(mine), cut(sums, shard));
               EXPECT_EQ(doubles(all), sums);
               EXPECT_EQ(doubles(x), sums);
               const Tensor told = shaped({2, 5}), swapped = zeros(context, {3, 2});
               comm.broadcast(told, 1).wait();
               EXPECT_EQ(doubles(told), brought(1, 10));
               comm.all_to_all(shaped({2, 3}), swapped).wait();
               for (int r = 0; r < 3; ++r)
                 EXPECT_EQ(cut(doubles(swapped), {2 * r, 2 * r + 2}),
                           cut(brought(r, 6), {2 * comm.rank(), 2 * comm.rank() + 2}));
               const Tensor one = shaped({}), cube = shaped({2, 2, 2});
               comm.all_reduce(one).wait();
               comm.all_reduce(cube).wait();
               EXPECT_EQ(doubles(one), sum_of_all(3, 1));
               EXPECT_EQ(doubles(cube), sum_of_all(3, 8));
               const Tensor arrived = zeros(context, {4, 1});
               const Work sent = comm.send(shaped({2, 2}), (comm.rank() + 1) % 3);
               comm.receive(arrived, (comm.rank() + 2) % 3).wait();
               sent.wait();
               EXPECT_EQ(doubles(arrived), brought((comm.rank() + 2) % 3, 4));
             },
             {.shared_memory = shared});
}

TEST(Communicator, PassesMessagesBetweenTwoRanksInOrderAndBothWays) {
  KEEL_NEEDS_RANKS(4);
  on_ranks(4, [](Communicator& comm) {
    const Context context = testing::context(1);
    const int next = (comm.rank() + 1) % 4, previous = (comm.rank() + 3) % 4;
    std::vector<Work> works;
    std::vector<Tensor> arrived;
    for (int i = 0; i < 5; ++i) {
      works.push_back(comm.send(tensor_of(context, {100.0 * comm.rank() + i}, {1}), next));
      works.push_back(comm.send(tensor_of(context, {-100.0 * comm.rank() - i}, {1}), previous));
      for (const int from : {previous, next}) {
        arrived.push_back(zeros(context, {1}));
        works.push_back(comm.receive(arrived.back(), from));
      }
    }
    for (const Work& work : works) work.wait();
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(doubles(arrived[static_cast<std::size_t>(2 * i)])[0], 100.0 * previous + i);
      EXPECT_EQ(doubles(arrived[static_cast<std::size_t>(2 * i + 1)])[0], -100.0 * next - i);
    }
  });
}

// Waiting in another order than that of asking must not hang.
TEST(Communicator, FinishesWhatIsUnderWayInAnyOrderOfWaiting) {
  KEEL_NEEDS_RANKS(3);
  on_ranks(3, [](Communicator& comm) {
    const Context context = testing::context(1);
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(tensor_of(context, brought(comm.rank(), 501), {501}));
      works.push_back(comm.all_reduce(tensors.back()));
    }
    std::mt19937 engine(static_cast<unsigned>(comm.rank()));
    std::shuffle(works.begin(), works.end(), engine);
    for (const Work& work : works) work.wait();
    for (const Tensor& x : tensors) EXPECT_EQ(doubles(x), sum_of_all(3, 501));
  });
}

TEST(Communicator, SplitsIntoGroupsOrderedByKey) {
  KEEL_NEEDS_RANKS(6);
  on_ranks(
      6,
      [](Communicator& comm) {
        const Context context = testing::context(1);
        const auto group = comm.split(comm.rank() % 2, -comm.rank());
        EXPECT_EQ(group->size(), 3);
        EXPECT_EQ(group->rank(), (5 - comm.rank()) / 2);
        EXPECT_EQ(group->nodes(), comm.rank() % 2 == 0 ? (std::vector<int>{1, 0, 0}) : (std::vector<int>{1, 1, 0}));
        const Tensor x = tensor_of(context, {static_cast<double>(comm.rank())}, {1});
        group->all_reduce(x).wait();
        EXPECT_EQ(doubles(x)[0], comm.rank() % 2 == 0 ? 0 + 2 + 4 : 1 + 3 + 5);
        comm.barrier();
      },
      {.nodes = {0, 0, 0, 1, 1, 1}});
}

TEST(Communicator, SplitsRanksOfOneKeyInTheirOrder) {
  for (const int n : {2, 3, 5})
    on_ranks(n, [&](Communicator& comm) {
      EXPECT_EQ(comm.nodes(), std::vector<int>(static_cast<std::size_t>(n), 0)) << "of one machine";
      const auto all = comm.split(3, 7), odd = comm.split(comm.rank() % 2, 7), own = comm.split(comm.rank(), 7);
      EXPECT_EQ(all->rank(), comm.rank());
      EXPECT_EQ(odd->rank(), comm.rank() / 2);
      EXPECT_EQ(own->size(), 1);
      const Tensor x = tensor_of(testing::context(1), {1.0 + comm.rank()}, {1});
      all->broadcast(x, n - 1).wait();
      EXPECT_EQ(x.item(), n);
    });
}

TEST(Communicator, CountsBytesInsideAndBetweenNodesAndThoseOfSignatures) {
  KEEL_NEEDS_RANKS(4);
  on_ranks(4,
           [](Communicator& comm) {
             const Context context = testing::context(1);
             comm.all_reduce(zeros(context, {4'000})).wait();
             const Traffic traffic = comm.traffic();
             EXPECT_EQ(traffic.sent(), 2 * 3 * 1'000 * 4);
             EXPECT_EQ(traffic.inside_node,
                       traffic.between_nodes + 2 * 1'000 * 4);  // of 4 shards, 2 are of the own node
             EXPECT_EQ(traffic.control, 3 * 24);
             EXPECT_EQ(traffic.collectives, 1);
           },
           {.algorithm = "hierarchical", .nodes = {0, 0, 1, 1}});
}

TEST(Arguments, ThatDoNotFitAreRefusedByName) {
  KEEL_NEEDS_RANKS(2);
  on_ranks(2, [](Communicator& comm) {
    const Context context = testing::context(1);
    EXPECT_THROW(comm.reduce_scatter(zeros(context, {8}), zeros(context, {5})), Error);
    EXPECT_THROW(comm.all_gather(zeros(context, {8}), zeros(context, {8})), Error);
    EXPECT_THROW(comm.broadcast(zeros(context, {8}), 2), Error);
    EXPECT_THROW(comm.all_to_all(zeros(context, {7}), zeros(context, {7})), Error);
    EXPECT_THROW(comm.all_reduce(zeros(context, {4, 4}).transpose(0, 1)), Error);
    EXPECT_THROW(comm.send(zeros(context, {1}), comm.rank()), Error);
    EXPECT_THROW(comm.receive(zeros(context, {1}), comm.rank()), Error);
    EXPECT_THROW(comm.broadcast(zeros(context, {8}), -1), Error);
    EXPECT_THROW(comm.all_to_all(zeros(context, {8}), zeros(context, {6})), Error);
    EXPECT_THROW(comm.all_reduce(Tensor()), Error);
    EXPECT_THROW(comm.all_gather(zeros(context, {4}), zeros(context, {8}, DType::f64)), Error);
    EXPECT_THROW(comm.all_gather(zeros(context, {4}), zeros(Context::create({.threads = 1}), {8})), Error);
    if (comm.rank() == 1) {
      EXPECT_THROW(comm.reduce(zeros(context, {4}), zeros(context, {5}), 1), Error);
      EXPECT_THROW(comm.reduce(zeros(context, {4}), Tensor(), 1), Error);
      EXPECT_THROW(comm.gather(zeros(context, {4}), zeros(context, {9}), 1), Error);
      EXPECT_THROW(comm.gather(zeros(context, {4}), Tensor(), 1), Error);
      EXPECT_THROW(comm.scatter(zeros(context, {9}), zeros(context, {4}), 1), Error);
      EXPECT_THROW(comm.scatter(Tensor(), zeros(context, {4}), 1), Error);
    }
    comm.barrier();
  });
}

}  // namespace
}  // namespace keel
