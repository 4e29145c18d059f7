// Strategies of communication on devices.

#include "keel/dist/parallel/fast_components.h"
#include "keel/dist/parallel/outer_steps.h"
#include "keel/dist/parallel/sparse_outer_steps.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

class StrategiesOnDevices : public NcclRanks {
 protected:
  static ShardedOptions by(const StrategyMaker& strategy, int number, int group) {
    ShardedOptions options = testing::stage(number);
    options.sharding.group = group;
    options.strategy = strategy;
    return options;
  }
  static void step_of(Sharded& engine, const UnitNet& net, const DeviceRank& own, int step) {
    const Tensor x = rows(own.context, step, own.devices, 0, 1, 100, DType::f32);
    engine.backward(mean(square(net(x))), {.weight = x.dim(0)});
    EXPECT_TRUE(engine.step(1e-2).get().taken);
  }
  // What each rank has after four steps.
  static std::vector<std::vector<double>> train(int ranks, const ShardedOptions& options) {
    std::vector<std::vector<double>> all(static_cast<std::size_t>(ranks));
    on_devices(ranks, [&](const DeviceRank& own) {
      UnitNet net;
      Sharded engine(net, own.context, own.devices, make_adamw(), options);
      for (int step = 0; step < 4; ++step) step_of(engine, net, own, step);
      all[static_cast<std::size_t>(own.rank())] = whole_values(engine);
      own.hosts.barrier();
    });
    return all;
  }
};

const StrategyMaker kStrategies[] = {
    [] { return make_outer_steps({.every = 2, .rate = 0.7, .momentum = 0.9, .nesterov = true, .delay = 1}); },
    [] { return make_sparse_outer_steps({.every = 2, .chunk = 256, .keep = 16}); },
    [] { return make_fast_components({.decay = 0.9, .chunk = 16, .keep = 3}); },
};

TEST_F(StrategiesOnDevices, GiveTheSameBitsInEveryStageWhereverTheOptimizerIs) {
  KEEL_NEEDS_DEVICES(4);
  for (const StrategyMaker& strategy : kStrategies)
    for (const Residence offload : {Residence::device, Residence::host}) {
      const auto values = [&](int number) {
        ShardedOptions options = by(strategy, number, 2);
        options.sharding.offload_optimizer = offload;
        return train(4, options);
      };
      const std::vector<std::vector<double>> expected = values(0);
      EXPECT_EQ(expected[0], expected[1]) << "of one group";
      for (const int number : {2, 3})
        EXPECT_TRUE(values(number) == expected) << strategy()->describe() << ", stage " << number;
    }
}

// A checkpoint is read by another stream while the next step changes what the strategy keeps.
TEST_F(StrategiesOnDevices, WaitForWhoStillReadsWhatTheyKeep) {
  KEEL_NEEDS_DEVICES(2);
  for (const StrategyMaker& strategy : kStrategies)
    for (const std::uint64_t seed : {1, 2, 3, 4})
      on_devices(2,
                 [&](const DeviceRank& own) {
                   UnitNet net;
                   Sharded engine(net, own.context, own.devices, make_adamw(), by(strategy, 0, 1));
                   step_of(engine, net, own, 0);
                   std::vector<Tensor> kept, copies;
                   for (const TensorPart& part : engine.strategy_state())
                     if (part.values.context() == own.context) kept.push_back(part.values);
                   ASSERT_FALSE(kept.empty());
                   std::vector<std::vector<double>> expected;
                   for (const Tensor& values : kept) {
                     expected.push_back(doubles(values));
                     copies.push_back(zeros(own.context, values.shape(), values.dtype()));
                   }
                   const Stream side = own.context.make_stream();
                   side.wait(own.context.stream().record());
                   {
                     const StreamScope scope(own.context, side);
                     for (std::size_t i = 0; i < kept.size(); ++i) kernels::copy_into(copies[i], kept[i]);
                   }
                   engine.hold_updates(side.record());
                   step_of(engine, net, own, 1);
                   side.synchronize();
                   for (std::size_t i = 0; i < kept.size(); ++i)
                     EXPECT_TRUE(doubles(copies[i]) == expected[i]) << strategy()->describe() << ", seed " << seed;
                   own.hosts.barrier();
                 },
                 {.drain_seed = seed});
}

}  // namespace
}  // namespace keel
