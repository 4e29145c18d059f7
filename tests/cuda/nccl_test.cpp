// Collectives between devices: the processors' bits, and the order among streams.

#include <algorithm>
#include <random>
#include <thread>

#include "keel/dist/comm/algorithms.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/cuda/runtime_kernels.h"

namespace keel {
namespace {

using namespace keel::testing;

class NcclCollectives : public NcclRanks {};

std::vector<double> sums(int n, std::int64_t count, double scale) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(scale * static_cast<double>((i % 5) * n * (n + 1) / 2));
  return values;
}
// Whole numbers, rank + 1 times a pattern, so that every order gives the same.
Tensor whole_numbers(const DeviceRank& own, std::int64_t count, DType dtype) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>((own.rank() + 1) * (i % 5)));
  return tensor_of(own.context, values, {count}, dtype);
}

// All three on the device and on the processors.
void check_against_processors(const DeviceRank& own, std::int64_t count, DType dtype, CombineOp op) {
  SCOPED_TRACE(concat(own.size(), " ranks, ", count, " ", dtype, ", ", name_of(op)));
  const Context host = context(1);
  const Tensor there = brought(own.context, own.rank(), count, dtype), here = brought(host, own.rank(), count, dtype);
  const Dims shard = {part({0, count}, own.size(), own.rank()).count()};
  const Tensor mine_there = zeros(own.context, shard, dtype), mine_here = zeros(host, shard, dtype);
  const Tensor all_there = zeros(own.context, {count}, dtype), all_here = zeros(host, {count}, dtype);
  own.devices.reduce_scatter(there, mine_there, op).wait();
  own.devices.all_gather(mine_there, all_there).wait();
  own.devices.all_reduce(there, op).wait();
  own.hosts.reduce_scatter(here, mine_here, op).wait();
  own.hosts.all_gather(mine_here, all_here).wait();
  own.hosts.all_reduce(here, op).wait();
  EXPECT_EQ(doubles(mine_there), doubles(mine_here));
  EXPECT_EQ(doubles(all_there), doubles(all_here));
  EXPECT_EQ(doubles(there), doubles(here));
}

TEST_F(NcclCollectives, GiveTheBitsOfProcessorsForAnyRanksCountsAndTypes) {
  for (int n = 1; n <= most(); ++n)
    on_devices(n,
               [&](const DeviceRank& own) {
                 for (const DType dtype : kAllTypes) {
                   for (const std::int64_t count : {0, 1, n - 1, n, n + 1, 101})
                     check_against_processors(own, count, dtype, CombineOp::sum);
                   check_against_processors(own, 101, dtype, CombineOp::pairwise_sum);
                   check_against_processors(own, 11, dtype, CombineOp::maximum);
                   check_against_processors(own, 11, dtype, CombineOp::minimum);
                 }
               },
               {.nccl = {.check_every = 1}});
}

TEST_F(NcclCollectives, RunEveryAlgorithmInItsOrder) {
  KEEL_NEEDS_DEVICES(2);
  for (const Algorithm* algorithm : algorithms())
    for (int n = 2; n <= most(); ++n) {
      SCOPED_TRACE(algorithm->name);
      const std::string name(algorithm->name);
      const std::vector<int> nodes = n == 4 ? std::vector{0, 0, 1, 1} : std::vector<int>{};
      on_devices(n,
                 [&](const DeviceRank& own) {
                   for (const std::int64_t count : {1, 60, 101})
                     check_against_processors(own, count, DType::bf16, CombineOp::sum);
                 },
                 {.nccl = {.algorithm = name}, .control = {.algorithm = name, .nodes = nodes}});
    }
}

TEST_F(NcclCollectives, LeftToNcclGiveSumsOfWholeNumbersForAnyCount) {
  for (int n = 1; n <= most(); ++n)
    on_devices(n,
               [&](const DeviceRank& own) {
                 for (const DType dtype : kAllTypes)
                   for (const std::int64_t count : {0, 1, n, n + 1, 50}) {
                     const Tensor x = whole_numbers(own, count, dtype);
                     const Span span = part({0, count}, n, own.rank());
                     const Tensor shard = x.slice(0, span.begin, span.end);  // in place
                     own.devices.reduce_scatter(x, shard).wait();
                     own.devices.all_gather(shard, x).wait();
                     EXPECT_EQ(doubles(x), sums(n, count, 1)) << count << ' ' << dtype;
                     const Tensor y = whole_numbers(own, count, dtype);
                     own.devices.all_reduce(y).wait();
                     EXPECT_EQ(doubles(y), sums(n, count, 1)) << count << ' ' << dtype;
                   }
               },
               {.nccl = {.order = ReduceOrder::fast, .check_every = 1}});
}

TEST_F(NcclCollectives, WorkInPlace) {
  for (int n = 1; n <= most(); ++n)
    on_devices(n, [&](const DeviceRank& own) {
      for (const std::int64_t count : {1, 12, 13}) {
        const Tensor x = whole_numbers(own, count, DType::f32);
        const Span span = part({0, count}, n, own.rank());
        const Tensor shard = x.slice(0, span.begin, span.end);
        own.devices.reduce_scatter(x, shard).wait();
        own.devices.all_gather(shard, x).wait();
        EXPECT_EQ(doubles(x), sums(n, count, 1)) << count;
      }
    });
}

TEST_F(NcclCollectives, BroadcastFromAnyRoot) {
  for (int n = 1; n <= most(); ++n)
    on_devices(n, [&](const DeviceRank& own) {
      for (int root = 0; root < n; ++root)
        for (const std::int64_t count : {0, 1, 1'003}) {
          const Tensor x = brought(own.context, own.rank(), count, DType::f32);
          own.devices.broadcast(x, root).wait();
          EXPECT_EQ(doubles(x), doubles(brought(own.context, root, count, DType::f32)));
        }
    });
}

TEST_F(NcclCollectives, TransposeByAllToAll) {
  for (int n = 1; n <= most(); ++n)
    on_devices(n, [&](const DeviceRank& own) {
      std::vector<double> in, expected;
      for (int i = 0; i < n; ++i) {
        in.push_back(10 * own.rank() + i);
        expected.push_back(10 * i + own.rank());
      }
      const Tensor out = zeros(own.context, {n});
      own.devices.all_to_all(tensor_of(own.context, in, {n}), out).wait();
      EXPECT_EQ(doubles(out), expected);
    });
}

TEST_F(NcclCollectives, PassMessagesBothWaysInOrder) {
  KEEL_NEEDS_DEVICES(2);
  for (int n = 2; n <= most(); ++n)
    on_devices(n, [&](const DeviceRank& own) {
      const int next = (own.rank() + 1) % n, previous = (own.rank() + n - 1) % n;
      std::vector<Work> works;
      std::vector<Tensor> arrived;
      for (int i = 0; i < 5; ++i) {
        works.push_back(own.devices.send(tensor_of(own.context, {100.0 * own.rank() + i}, {1}), next));
        arrived.push_back(zeros(own.context, {1}));
        works.push_back(own.devices.receive(arrived.back(), previous));
      }
      works.push_back(own.devices.all_reduce(zeros(own.context, {3})));
      for (const Work& work : works) work.wait();
      for (int i = 0; i < 5; ++i) EXPECT_EQ(doubles(arrived[static_cast<std::size_t>(i)])[0], 100.0 * previous + i);
      const Tensor again = zeros(own.context, {2});
      if (own.rank() == 0) own.devices.send(tensor_of(own.context, {3, 4}, {2}), 1).wait();
      const Work last = own.rank() == 1 ? own.devices.receive(again, 0) : Work();
      while (!last.has_finished()) std::this_thread::yield();
      if (own.rank() == 1) { EXPECT_EQ(doubles(again), (std::vector<double>{3, 4})); }
    });
}

TEST_F(NcclCollectives, TakeTensorsOfTheProcessorAlong) {
  KEEL_NEEDS_DEVICES(2);
  on_devices(2, [](const DeviceRank& own) {
    const Tensor there = tensor_of(own.context, {1.0 + own.rank()}, {1}), here = tensor_of(context(1), {10}, {1});
    const Work devices = own.devices.all_reduce(there), hosts = own.devices.all_reduce(here);
    hosts.wait();
    devices.wait();
    EXPECT_EQ(doubles(here)[0], 20);
    EXPECT_EQ(doubles(there)[0], 3);
    EXPECT_EQ(own.devices.traffic().sent(), 4);
  });
}

TEST_F(NcclCollectives, SplitIntoGroupsOrderedByKey) {
  KEEL_NEEDS_DEVICES(4);
  on_devices(4,
             [](const DeviceRank& own) {
               const auto pair = own.devices.split(own.rank() % 2, -own.rank());
               EXPECT_EQ(pair->size(), 2);
               EXPECT_EQ(pair->rank(), own.rank() < 2 ? 1 : 0);
               EXPECT_EQ(pair->nodes(), (std::vector{1, 0}));
               const Tensor x = tensor_of(own.context, {1.0 * own.rank()}, {1}), y = zeros(own.context, {2});
               pair->all_gather(x, y).wait();
               own.devices.all_reduce(x).wait();  // the two go on beside each other
               EXPECT_EQ(doubles(y), own.rank() % 2 == 0 ? (std::vector<double>{2, 0}) : (std::vector<double>{3, 1}));
               EXPECT_EQ(doubles(x)[0], 6);
               EXPECT_THROW(own.devices.split(-1, 0), Error);
             },
             {.control = {.nodes = {0, 0, 1, 1}}});
}

TEST_F(NcclCollectives, OfTwoCommunicatorsOnOneDeviceGoOnBesideEachOther) {
  on_devices(1, [](const DeviceRank& own) {
    const auto second = make_nccl_communicator(own.context, own.hosts.split(0, 0), {.order = ReduceOrder::fast});
    const auto part = own.devices.split(0, 0);
    for (int i = 0; i < 5; ++i) {
      std::vector<Tensor> sums;
      std::vector<Work> works;
      for (Communicator* each : {&own.devices, second.get(), part.get()}) {
        const Tensor x = tensor_of(own.context, std::vector<double>(1'000, i + 1), {1'000});
        sums.push_back(zeros(own.context, {1'000}));
        works.push_back(each->all_reduce(x));
        works.push_back(each->reduce_scatter(x, sums.back()));
      }
      for (const Work& work : works) work.wait();
      for (const Tensor& sum : sums) EXPECT_EQ(doubles(sum), std::vector<double>(1'000, i + 1));
    }
  });
}

// As NCCL's version has it.
TEST_F(NcclCollectives, OfTwoRanksOnOneDeviceAreDoneOrRefusedToBoth) {
  const auto told = messages(2,
                             [](const DeviceRank& own) {
                               const Tensor x = tensor_of(own.context, {1.0 + own.rank()}, {1});
                               own.devices.all_reduce(x).wait();
                               EXPECT_EQ(doubles(x)[0], 3);
                             },
                             {.devices = 1});
  EXPECT_EQ(told[0].empty(), told[1].empty()) << told[0] << "; " << told[1];
  if (!told[0].empty()) {
    EXPECT_NE(told[0].find("Duplicate GPU"), std::string::npos) << told[0];
    GTEST_SKIP() << "NCCL refuses two ranks on one GPU: " << told[0];
  }
}

TEST_F(NcclCollectives, CountTheBytesThatTheirAlgorithmSends) {
  KEEL_NEEDS_DEVICES(4);
  const auto sent = [](const DeviceRank& own, const auto& ask) {
    const Traffic before = own.devices.traffic();
    ask();
    const Traffic after = own.devices.traffic();
    return Traffic{after.inside_node - before.inside_node, after.between_nodes - before.between_nodes};
  };
  for (const ReduceOrder order : {ReduceOrder::written, ReduceOrder::fast})
    on_devices(4,
               [&](const DeviceRank& own) {
                 const Tensor x = zeros(own.context, {4'000}), shard = zeros(own.context, {1'000});
                 const bool written = order == ReduceOrder::written;
                 // A ring crosses between the nodes behind ranks 1 and 3.
                 const bool crosses = own.rank() % 2 == 1;
                 const std::int64_t leg = 3 * 4'000;
                 const Traffic scattered = sent(own, [&] { own.devices.reduce_scatter(x, shard).wait(); });
                 EXPECT_EQ(scattered.sent(), leg);
                 EXPECT_EQ(scattered.inside_node, written ? leg / 3 : crosses ? 0 : leg);
                 const Traffic gathered = sent(own, [&] { own.devices.all_gather(shard, x).wait(); });
                 EXPECT_EQ(gathered.sent(), leg);
                 EXPECT_EQ(gathered.between_nodes, crosses ? leg : 0);
                 EXPECT_EQ(sent(own, [&] { own.devices.all_reduce(x).wait(); }).sent(), 2 * leg);
                 EXPECT_EQ(sent(own, [&] { own.devices.broadcast(x, 1).wait(); }).sent(), own.rank() == 0 ? 0 : 16'000);
                 EXPECT_EQ(sent(own, [&] { own.devices.all_to_all(x, zeros(own.context, {4'000})).wait(); }).sent(),
                           leg);
                 // 4,001 elements: rank 0 has one more.
                 const Tensor odd = zeros(own.context, {4'001});
                 const std::int64_t all = 4'001 * 4, own_bytes = part({0, 4'001}, 4, own.rank()).count() * 4;
                 const Traffic uneven = sent(own, [&] { own.devices.all_reduce(odd).wait(); });
                 const std::int64_t next_bytes = part({0, 4'001}, 4, (own.rank() + 1) % 4).count() * 4;
                 EXPECT_EQ(uneven.sent(), all - own_bytes + all - next_bytes);
                 EXPECT_EQ(own.devices.traffic().collectives, 6);
                 context(1).synchronize();
                 own.context.synchronize();
               },
               {.nccl = {.order = order}, .control = {.nodes = {0, 0, 1, 1}}});
}

TEST_F(NcclCollectives, ComeAfterTheKernelsBeforeThemAndBeforeThoseBehind) {
  KEEL_NEEDS_DEVICES(2);
  for (const std::uint64_t seed : {0, 1, 2, 3, 4, 5})
    on_devices(2,
               [&](const DeviceRank& own) {
                 std::vector<Tensor> tensors, copies;
                 std::vector<Work> works;
                 for (int i = 0; i < 6; ++i) {
                   tensors.push_back(empty(own.context, {70}));
                   fill_by_kernel(tensors.back(), static_cast<float>(10 * i + own.rank()));
                   works.push_back(own.devices.all_reduce(tensors.back()));
                 }
                 std::vector<std::size_t> order = {0, 1, 2, 3, 4, 5};
                 std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(own.rank())));
                 copies.resize(6);
                 for (const std::size_t i : order) {
                   works[i].wait();
                   copies[i] = transfer(tensors[i], own.context.host());  // a read by the current stream
                   fill_by_kernel(tensors[i], -1);                        // and a write behind it
                 }
                 for (std::size_t i = 0; i < 6; ++i)
                   EXPECT_EQ(doubles(copies[i]), std::vector<double>(70, 20.0 * static_cast<double>(i) + 1))
                       << "seed " << seed;
                 for (const Tensor& x : tensors) EXPECT_EQ(doubles(x), std::vector<double>(70, -1));
               },
               {.drain_seed = seed});
}

TEST_F(NcclCollectives, OfAStreamOfTheCallersComeAfterThatOne) {
  KEEL_NEEDS_DEVICES(2);
  for (const std::uint64_t seed : {0, 1, 2, 3})
    on_devices(2,
               [&](const DeviceRank& own) {
                 const Tensor x = zeros(own.context, {70});
                 const Stream side = own.context.make_stream();
                 side.wait(own.context.stream().record());
                 x.storage()->used_by(side);
                 Work work;
                 {
                   const StreamScope scope(own.context, side);
                   fill_by_kernel(x, static_cast<float>(own.rank() + 1));
                   work = own.devices.all_reduce(x);
                 }
                 work.wait();
                 EXPECT_EQ(doubles(x), std::vector<double>(70, 3)) << "seed " << seed;
               },
               {.drain_seed = seed});
}

TEST_F(NcclCollectives, MayLoseTheirTensorsOnceTheyAreAskedFor) {
  KEEL_NEEDS_DEVICES(2);
  for (const std::uint64_t seed : {0, 1, 2, 3, 4, 5})
    on_devices(2,
               [&](const DeviceRank& own) {
                 const Tensor whole = zeros(own.context, {200});
                 Tensor mine = empty(own.context, {100});
                 const std::byte* const memory = mine.raw();
                 fill_by_kernel(mine, static_cast<float>(own.rank() + 1));
                 const Work work = own.devices.all_gather(mine, whole);
                 mine = Tensor();
                 const Tensor next = empty(own.context, {100});  // the same memory, for another purpose
                 EXPECT_EQ(next.raw(), memory);
                 fill_by_kernel(next, 7);
                 EXPECT_EQ(doubles(next), std::vector<double>(100, 7));
                 work.wait();
                 std::vector<double> expected(100, 1);
                 expected.resize(200, 2);
                 EXPECT_EQ(doubles(whole), expected) << "seed " << seed;
               },
               {.drain_seed = seed});
}

// Not for collectives that were asked for since: these may take as long as they like.
TEST_F(NcclCollectives, MakeReleasedMemoryWaitForThemselvesAlone) {
  KEEL_NEEDS_DEVICES(2);
  on_devices(2,
             [](const DeviceRank& own) {
               const Tensor later = zeros(own.context, {100});
               Tensor mine = zeros(own.context, {100});
               const Work sum = own.devices.all_reduce(mine);
               const std::byte* const memory = mine.raw();
               Work behind;
               if (own.rank() == 0) behind = own.devices.all_reduce(later);  // rank 1 is yet to come
               sum.wait();
               mine = Tensor();
               const Tensor next = empty(own.context, {100});
               EXPECT_EQ(next.raw(), memory);
               fill_by_kernel(next, 7);
               EXPECT_EQ(doubles(next), std::vector<double>(100, 7));
               own.hosts.barrier();
               if (own.rank() == 1) behind = own.devices.all_reduce(later);
               behind.wait();
               own.context.synchronize();
             },
             {.nccl = {.timeout = std::chrono::seconds(10)}});
}

TEST_F(NcclCollectives, AreThereWhenTheirWorkSaysSo) {
  KEEL_NEEDS_DEVICES(2);
  on_devices(2, [](const DeviceRank& own) {
    const Tensor x = tensor_of(own.context, {1.0 * own.rank(), 5}, {2});
    const Work work = own.devices.all_reduce(x);
    while (!work.has_finished()) std::this_thread::yield();
    const StreamScope scope(own.context, own.context.make_stream());  // one that waits for nothing
    EXPECT_EQ(doubles(x), (std::vector<double>{1, 10}));
  });
}

#ifdef KEEL_EMULATED
TEST_F(NcclCollectives, AreMissedByWhoReadsWithoutWaiting) {
  on_devices(2, [](const DeviceRank& own) {
    const Tensor x = tensor_of(own.context, {1.0 * own.rank(), 5}, {2});
    own.context.synchronize();
    const Work work = own.devices.all_reduce(x);
    EXPECT_EQ(doubles(x), (std::vector<double>{1.0 * own.rank(), 5}));
    own.devices.barrier();  // who waits brings the sum to both
    work.wait();
    EXPECT_EQ(doubles(x), (std::vector<double>{1, 10}));
  });
}

TEST_F(NcclCollectives, BlockNoHost) {
  on_devices(2, [](const DeviceRank& own) {
    std::vector<Tensor> tensors;
    for (int i = 0; i < 4; ++i) tensors.push_back(zeros(own.context, {101}, DType::bf16));
    own.devices.all_reduce(zeros(own.context, {101}, DType::bf16)).wait();  // its staging memory is there from now on
    own.context.synchronize();
    own.hosts.barrier();
    const std::uint64_t before = emulation::Machine::get().waits();
    for (const Tensor& x : tensors) own.devices.all_reduce(x).wait();
    own.devices.barrier();
    EXPECT_EQ(emulation::Machine::get().waits(), before);
    own.hosts.barrier();
  });
}
#endif

}  // namespace
}  // namespace keel
