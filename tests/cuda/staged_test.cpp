// Collectives of devices that go through the memory of their processors.

#include "keel/dist/comm/staged_communicator.h"

#include <chrono>
#include <thread>

#include "tests/cuda/nccl_ranks.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

class StagedCollectives : public NcclRanks {
 protected:
  static void on_staged(int n, const std::function<void(const DeviceRank&)>& f, std::uint64_t drain_seed = 0) {
    on_devices(n,
               [&](const DeviceRank& own) {
                 const auto staged = make_staged_communicator(own.hosts.split(0, own.rank()));
                 f({*staged, own.hosts, own.context});
               },
               {.drain_seed = drain_seed});
  }
};

// A receive that waits behind a send, of which the other rank's receive waits behind its own, must begin all the same.
TEST_F(StagedCollectives, RanksSendToEachOtherBeforeTheyReceive) {
  KEEL_NEEDS_DEVICES(2);
  for (const std::uint64_t seed : {0, 1, 2})
    on_staged(
        2,
        [](const DeviceRank& own) {
          const int other = 1 - own.rank();
          std::vector<Work> works;
          std::vector<Tensor> gotten;
          for (const std::int64_t count : {1, 1000}) {
            gotten.push_back(zeros(own.context, {count}));
            works.push_back(own.devices.send(brought(own.context, own.rank(), count, DType::f32), other));
            works.push_back(own.devices.receive(gotten.back(), other));
          }
          for (const Work& work : works) work.wait();
          for (const Tensor& x : gotten)
            EXPECT_EQ(doubles(x), doubles(brought(own.context, other, x.numel(), DType::f32)));
        },
        seed);
}

TEST_F(StagedCollectives, GiveWhatProcessorsGive) {
  KEEL_NEEDS_DEVICES(2);
  for (const int n : {2, 3, 4}) {
    if (n > most()) continue;
    for (const std::uint64_t seed : {0, 1, 2})
      on_staged(
          n,
          [&](const DeviceRank& own) {
            const Context host = testing::context(1);
            for (const DType dtype : {DType::f32, DType::bf16, DType::i64})
              for (const std::int64_t count : {0, 1, 12, 1000}) {
                const auto both = [&](const auto& run) {
                  const Tensor device = run(own.devices, own.context), processor = run(own.hosts, host);
                  EXPECT_EQ(doubles(device), doubles(processor)) << n << " ranks, " << count << " of " << dtype;
                };
                const auto mine = [&](const Context& context) { return brought(context, own.rank(), count, dtype); };
                const std::int64_t shard = part({0, count}, n, own.rank()).count();
                both([&](Communicator& ranks, const Context& context) {
                  const Tensor x = mine(context);
                  ranks.all_reduce(x).wait();
                  return x;
                });
                both([&](Communicator& ranks, const Context& context) {
                  const Tensor out = empty(context, {shard}, dtype);
                  ranks.reduce_scatter(mine(context), out).wait();
                  return out;
                });
                both([&](Communicator& ranks, const Context& context) {
                  const Tensor out = empty(context, {count}, dtype);
                  ranks.all_gather(brought(context, own.rank(), shard, dtype), out).wait();
                  return out;
                });
                both([&](Communicator& ranks, const Context& context) {
                  const Tensor x = mine(context);
                  ranks.broadcast(x, 1).wait();
                  return x;
                });
                both([&](Communicator& ranks, const Context& context) {
                  const Tensor in = brought(context, own.rank(), count * n, dtype),
                               out = empty(context, {count * n}, dtype);
                  ranks.all_to_all(in, out).wait();
                  return out;
                });
                both([&](Communicator& ranks, const Context& context) {
                  const Tensor x = mine(context);
                  ranks.reduce(x, x, 1).wait();
                  return x;
                });
                both([&](Communicator& ranks, const Context& context) {
                  const Tensor all = zeros(context, {count * n}, dtype), back = zeros(context, {count}, dtype);
                  ranks.gather(mine(context), own.rank() == 0 ? all : Tensor(), 0).wait();
                  ranks.scatter(own.rank() == 0 ? all : Tensor(), back, 0).wait();
                  return back;
                });
                both([&](Communicator& ranks, const Context& context) {
                  // `count` numbers for the next rank, and none for others.
                  std::vector<std::int64_t> sends(static_cast<std::size_t>(n)), receives(static_cast<std::size_t>(n));
                  sends[static_cast<std::size_t>((own.rank() + 1) % n)] = count;
                  receives[static_cast<std::size_t>((own.rank() + n - 1) % n)] = count;
                  const Tensor out = empty(context, {count}, dtype);
                  ranks.all_to_all_v(mine(context), out, sends, receives).wait();
                  return out;
                });
              }
          },
          seed);
  }
}

TEST_F(StagedCollectives, BeginInTheOrderInWhichTheyWereAskedForWhateverIsWaitedForFirst) {
  KEEL_NEEDS_DEVICES(3);
  on_staged(3, [](const DeviceRank& own) {
    std::vector<Tensor> all;
    std::vector<Work> works;
    for (int i = 0; i < 5; ++i) {
      all.push_back(kernels::full(own.context, {100 + i}, own.rank() + i));
      works.push_back(own.devices.all_reduce(all.back()));
    }
    const Tensor host = kernels::full(testing::context(1), {3}, own.rank());
    own.devices.all_reduce(host).wait();  // of the processor, among those of the device
    EXPECT_EQ(doubles(host)[0], 3);
    for (int i = 0; i < 5; ++i) works[static_cast<std::size_t>(own.rank() == 1 ? i : 4 - i)].wait();
    for (int i = 0; i < 5; ++i) EXPECT_EQ(doubles(all[static_cast<std::size_t>(i)])[7], 3 + 3 * i);
  });
}

TEST_F(StagedCollectives, EndForWhoLooksAgainAndAgain) {
  KEEL_NEEDS_DEVICES(2);
  on_staged(2, [](const DeviceRank& own) {
    const Tensor x = kernels::full(own.context, {1'000}, own.rank() + 1), gotten = zeros(own.context, {10});
    const Work sum = own.devices.all_reduce(x);
    const Work message =
        own.rank() == 0 ? own.devices.send(kernels::full(own.context, {10}, 5), 1) : own.devices.receive(gotten, 0);
    for (const Work* work : {&message, &sum}) {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (!work->has_finished() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      EXPECT_TRUE(work->has_finished());
    }
    EXPECT_EQ(doubles(x), std::vector<double>(1'000, 3));
    EXPECT_EQ(doubles(gotten), std::vector<double>(10, own.rank() == 0 ? 0 : 5));
    EXPECT_EQ(sum.sent(), 4'000);
  });
}

TEST_F(StagedCollectives, TrainToTheBitsOfNccl) {
  KEEL_NEEDS_DEVICES(3);
  for (const int number : {0, 1, 2, 3}) {
    std::vector<double> outcomes[2];
    for (const bool staged : {false, true}) {
      const auto run = [&](const DeviceRank& own) {
        UnitNet net;
        Sharded engine(net, own.context, own.devices, make_adamw(), stage(number));
        for (int step = 0; step < 3; ++step) {
          const Tensor x = rows(own.context, step, own.devices, 0, 1, 100, DType::f32);
          engine.backward(mean(net(x)), {.weight = x.dim(0)});
          EXPECT_TRUE(engine.step(1e-2).get().taken);
        }
        const std::vector<double> values = whole_values(engine);
        if (own.rank() == 0) outcomes[staged] = values;
      };
      if (staged) on_staged(3, run, 7);
      else on_devices(3, run);
    }
    EXPECT_TRUE(outcomes[0] == outcomes[1]) << "stage " << number;
  }
}

}  // namespace
}  // namespace keel
