// Collectives through memory that ranks share: the same numbers and bytes as by messages, in every size that goes
// another way, also where a rank gives up in the middle.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <thread>

#include "keel/dist/comm/node_memory.h"
#include "keel/dist/comm/schedule.h"
#include "keel/kernels/combine_spans.h"
#include "keel/kernels/elementwise.h"
#include "tests/dist/comm/heard.h"
#include "tests/dist/comm/ranks.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

// On either side of the limits: none, one, what travels with the signature, one round, and several.
std::vector<std::int64_t> counts(DType dtype, int n) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t small = static_cast<std::int64_t>(NodeArea::kSmall) / size;
  const std::int64_t round = static_cast<std::int64_t>(NodeArea::kBuffer) / size;
  std::vector<std::int64_t> all = {0, 1, n - 1, n + 1, small, small + 1, 20'011};
  if (n <= 4 && dtype == DType::bf16) all.insert(all.end(), {round - 1, round + n});
  if (n <= 4 && dtype != DType::bf16) all.push_back(3 * round + 17);
  return all;
}

// Where tensors lie: in memory of their rank's, in memory that the communicator gives, or in that but for rank 0's.
enum class Lie { apart, where_ranks_see_them, mixed };

// The numbers of all collectives on all these counts, and the bytes sent, one after another.
std::vector<double> everything(Communicator& comm, DType dtype, Lie lie = Lie::apart) {
  const Context context = testing::context(1);
  const int n = comm.size();
  std::vector<double> numbers;
  const auto keep = [&](const Tensor& x) {
    // Few of them, or the test would take long; those at the ends of shards and rounds among them.
    const std::vector<double> values = doubles(x);
    double hash = 0;
    for (std::size_t i = 0; i < values.size(); ++i) hash += values[i] * static_cast<double>(i % 1'021 + 1);
    numbers.push_back(hash);
    for (std::size_t i = 0; i < values.size(); i += values.size() / 16 + 1) numbers.push_back(values[i]);
  };
  for (const std::int64_t count : counts(dtype, n)) {
    const auto placed = [&](const Tensor& numbers) {
      if (lie == Lie::apart) return numbers;
      const Tensor seen = comm.allocate(context, count + n, dtype, Purpose::workspace);
      if (lie == Lie::mixed && comm.rank() == 0) return numbers;
      const Tensor part = seen.slice(0, 1, 1 + numbers.numel());
      kernels::copy_into(part, numbers);
      return part;
    };
    const auto mine = [&](std::int64_t size) {
      return placed(uniform_tensor(context, {size}, static_cast<std::uint64_t>(10 + comm.rank()), dtype));
    };
    const auto room = [&](std::int64_t size) { return placed(zeros(context, {size}, dtype)); };
    const Span shard = part({0, count}, n, comm.rank());
    const Tensor x = mine(count), scattered = room(shard.count());
    comm.reduce_scatter(x, scattered).wait();
    keep(scattered);
    const Tensor in_place = mine(count);
    comm.reduce_scatter(in_place, in_place.slice(0, shard.begin, shard.end)).wait();
    keep(in_place);
    comm.all_reduce(x, count % 2 == 0 ? CombineOp::sum : CombineOp::maximum).wait();
    keep(x);
    const Tensor gathered = room(count);
    comm.all_gather(mine(shard.count()), gathered).wait();
    keep(gathered);
    const Tensor own = mine(count);
    comm.all_gather(own.slice(0, shard.begin, shard.end), own).wait();
    keep(own);
    const Tensor y = mine(count);
    comm.broadcast(y, n - 1).wait();
    keep(y);
    const std::int64_t parts = count / n * n;
    const Tensor received = room(parts);
    comm.all_to_all(mine(parts), received).wait();
    keep(received);
    const Tensor reduced = mine(count), all = room(parts), own_part = room(parts / n);
    comm.reduce(reduced, reduced, n / 2, CombineOp::maximum).wait();
    keep(reduced);
    comm.gather(mine(parts / n), all, n - 1).wait();
    keep(all);
    comm.scatter(mine(parts), own_part, 0).wait();
    keep(own_part);
    comm.barrier();
  }
  const Traffic traffic = comm.traffic();
  for (const std::int64_t bytes : {traffic.inside_node, traffic.between_nodes, traffic.control, traffic.collectives})
    numbers.push_back(static_cast<double>(bytes));
  return numbers;
}

TEST(NodeMemory, GivesTheNumbersAndBytesOfMessages) {
  for (const int n : {1, 2, 3, 4, 7, 8}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
      if (n > 4 && dtype != DType::bf16) continue;
      const auto run = [&](bool shared, Lie lie) {
        return results(n, [&](Communicator& comm) { return everything(comm, dtype, lie); }, {.shared_memory = shared});
      };
      const auto by_messages = run(false, Lie::apart);
      for (const Lie lie : {Lie::apart, Lie::where_ranks_see_them, Lie::mixed})
        EXPECT_TRUE(run(true, lie) == by_messages) << n << " ranks, " << dtype << ", " << static_cast<int>(lie);
    }
  }
}

// More than there are slots, of sizes that go different ways, waited for in any order.
TEST(NodeMemory, HoldsManyCollectivesUnderWay) {
  for (const int n : {2, 3, 4}) {
    on_ranks(n, [](Communicator& comm) {
      const Context context = testing::context(1);
      for (int run = 0; run < 2; ++run) {
        std::vector<Tensor> tensors;
        std::vector<Work> works;
        for (int i = 0; i < 40; ++i) {
          const std::int64_t count = i % 7 == 0 ? 150'000 : i % 3 == 0 ? 2'000 : 20;
          tensors.push_back(
              tensor_of(context, std::vector<double>(static_cast<std::size_t>(count), comm.rank() + i), {count}));
          works.push_back(comm.all_reduce(tensors.back()));
        }
        std::mt19937 engine(static_cast<unsigned>(comm.rank() + run));
        std::shuffle(works.begin(), works.end(), engine);
        for (const Work& work : works) work.wait();
        for (int i = 0; i < 40; ++i) {
          const std::vector<double> values = doubles(tensors[static_cast<std::size_t>(i)]);
          const double expected = comm.size() * (comm.size() - 1) / 2 + comm.size() * i;
          EXPECT_TRUE(std::all_of(values.begin(), values.end(), [&](double v) { return v == expected; })) << i;
        }
      }
    });
  }
}

TEST(NodeMemory, ServesSplitGroupsOfEverySize) {
  KEEL_NEEDS_RANKS(4);
  on_ranks(4, [](Communicator& comm) {
    for (const int colors : {1, 2, 3, 4}) {
      const auto group = comm.split(comm.rank() % colors, -comm.rank());
      const Tensor x = tensor_of(testing::context(1), std::vector<double>(100'000, 1), {100'000});
      group->all_reduce(x).wait();
      EXPECT_EQ(doubles(x)[99'999], group->size());
    }
  });
}

// The late rank finds everything that the others have written, and still must not touch what they have let go.
TEST(NodeMemory, IsLeftAloneByARankThatComesAfterTheOthersGaveUp) {
  KEEL_NEEDS_RANKS(3);
  for (const std::int64_t count : {8, 300'000}) {
    const auto told = messages(3,
                               [&](Communicator& comm) {
                                 const Tensor x =
                                     comm.allocate(testing::context(1), count, DType::f32, Purpose::workspace);
                                 kernels::fill(x, 1);
                                 comm.barrier();
                                 if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(600));
                                 try {
                                   comm.all_reduce(x).wait();
                                 } catch (const std::exception&) {
                                   if (comm.rank() != 1) {
                                     std::memset(x.raw(), 0, x.bytes());
                                     std::this_thread::sleep_for(std::chrono::milliseconds(600));
                                     EXPECT_EQ(doubles(x), std::vector<double>(static_cast<std::size_t>(count), 0));
                                   }
                                   throw;
                                 }
                               },
                               {.timeout = std::chrono::milliseconds(200)});
    for (const std::string& text : told) EXPECT_NE(text.find("nothing came from rank 1"), std::string::npos) << text;
  }
}

TEST(NodeMemory, WhoeverDoesNotComeIsNamed) {
  KEEL_NEEDS_RANKS(3);
  const std::pair<std::set<int>, std::string> cases[] = {
      {{0}, "rank 0"}, {{1}, "rank 1"}, {{2}, "rank 2"}, {{0, 1}, "ranks 0, 1"}, {{1, 2}, "ranks 1, 2"}};
  for (const auto& [late, text] : cases)
    for (const std::int64_t count : {8, 300'000}) {
      const auto told = messages(3,
                                 [&, &absent = late](Communicator& comm) {
                                   const Tensor x = zeros(testing::context(1), {count});
                                   comm.barrier();
                                   if (absent.count(comm.rank()) != 0)
                                     std::this_thread::sleep_for(std::chrono::milliseconds(300));
                                   comm.all_reduce(x).wait();
                                 },
                                 {.timeout = std::chrono::milliseconds(100)});
      for (const std::string& each : told) EXPECT_NE(each.find("nothing came from " + text), std::string::npos) << each;
    }
}

// A rank fails while large collectives are under way on all: nobody hangs, and all hear why.
TEST(NodeMemory, TellsOfAFailureInTheMiddle) {
  KEEL_NEEDS_RANKS(4);
  for (int run = 0; run < 10; ++run) {
    const auto told = messages(4, [&](Communicator& comm) {
      std::vector<Tensor> tensors;
      std::vector<Work> works;
      const Context context = testing::context(1);
      for (int i = 0; i < 8; ++i) {
        tensors.push_back(i % 2 == 0 ? zeros(context, {400'000})
                                     : comm.allocate(context, 400'000, DType::f32, Purpose::workspace));
      }
      for (int i = 0; i < 8; ++i) {
        works.push_back(comm.all_reduce(tensors[static_cast<std::size_t>(i)]));
        if (comm.rank() == 2 && i == run % 7) throw Error("the roof is on fire");
      }
      for (const Work& work : works) work.wait();
    });
    EXPECT_EQ(told[2], "the roof is on fire");
    for (const std::size_t r : {0, 1, 3}) EXPECT_TRUE(is_heard(told[r], "rank 2 failed: the roof is on fire"));
  }
}

TEST(NodeMemory, OfARankThatLeavesInTheMiddleIsMissed) {
  KEEL_NEEDS_RANKS(3);
  const auto told = messages(3, [](Communicator& comm) {
    const Tensor x = zeros(testing::context(1), {500'000});
    comm.all_reduce(x).wait();
    if (comm.rank() == 1) return;
    comm.all_reduce(x).wait();
  });
  EXPECT_EQ(told[1], "");
  for (const std::size_t r : {0, 2}) EXPECT_NE(told[r].find("rank 1 has left"), std::string::npos) << told[r];
}

TEST(CombineSpans, HasTheBitsOfTheKernel) {
  const Context context = testing::context(1);
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u8}) {
    for (const CombineOp op :
         {CombineOp::sum, CombineOp::maximum, CombineOp::minimum, CombineOp::product, CombineOp::mean}) {
      for (int n = 1; n <= 9; ++n) {
        constexpr std::int64_t kCount = 3'001;
        std::vector<Tensor> terms;
        std::vector<const std::byte*> from;
        for (int r = 0; r < n; ++r) {
          std::vector<double> values =
              doubles(uniform_tensor(context, {kCount}, static_cast<std::uint64_t>(r), DType::f64));
          for (double& v : values) v = is_floating(dtype) ? v * 3 : std::floor((v + 1) * 20);
          if (is_floating(dtype)) {
            values[static_cast<std::size_t>(r)] = nan;
            values[100 + static_cast<std::size_t>(r)] = inf;
            values[200 + static_cast<std::size_t>(r)] = -inf;
            values[300] = r % 2 == 0 ? inf : -inf;
            values[301] = r == 0 ? -0.0 : 0.0;
            values[302] = 1e-40;
          }
          terms.push_back(tensor_of(context, values, {kCount}, dtype));
          from.push_back(terms.back().raw());
        }
        const Tensor expected = empty(context, {kCount}, dtype), other = empty(context, {kCount}, dtype);
        kernels::combine({terms, expected, op});
        // The last term is a result, too.
        std::byte* const to[] = {other.raw(), terms.back().raw()};
        combine_spans({dtype, dtype, op}, from, to, 0, 1'500);
        combine_spans({dtype, dtype, op}, from, to, 1'500, kCount);
        for (const Tensor& result : {other, terms.back()})
          EXPECT_EQ(std::memcmp(result.raw(), expected.raw(), expected.bytes()), 0)
              << dtype << ' ' << name_of(op) << ' ' << n;
      }
    }
  }
}

}  // namespace
}  // namespace keel
