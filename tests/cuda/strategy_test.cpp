// Strategies of communication between groups of devices, whose optimizer may work in the processor's memory.

#include <memory>
#include <utility>
#include <vector>

#include "keel/dist/plan/rank_plan.h"
#include "keel/dist/strategies/fast_components.h"
#include "keel/dist/strategies/outer_steps.h"
#include "keel/dist/strategies/sparse_outer_steps.h"
#include "keel/optim/elementwise.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

class StrategyOnDevice : public NcclRanks {
 protected:
  // State, and peaks of buckets, on the device and in the processor's memory; what goes between groups.
  struct Run {
    int steps, stage, ranks, group;
  };
  static void expect_plan(const StrategyMaker& maker, const Run& run) {
    for (const Residence optimizer : {Residence::device, Residence::host})
      on_devices(run.ranks, [&](const DeviceRank& own) {
        UnitNet net(kWidth, 2), planned(kWidth, 2);
        ShardedOptions options = testing::stage(run.stage);
        options.policy = PrecisionPolicy::of(DType::bf16);
        options.sharding.group = run.group;
        options.sharding.offload_optimizer = optimizer;
        options.strategy = maker;
        const auto make = [] {
          return make_elementwise("test", {.settings = AdamSettings{.decoupled = true}, .weight_decay = 0.01});
        };
        const RankPlan plan =
            plan_rank(lay_out(planned, shard_ranks(options, run.ranks)), *make(), options, run.ranks, own.rank(),
                      {.route = {.nccl = CollectiveRoute::Nccl::gathers}, .on_device = true});
        Sharded engine(net, own.context, own.devices, make(), options);
        own.context.allocator().reset_peaks();
        own.context.host().allocator().reset_peaks();
        for (int step = 0; step < run.steps; ++step) {
          const Tensor x = rows(own.context, step, own.devices, 0, 1, 100, DType::bf16);
          engine.backward(mean(net(x)), {.weight = x.dim(0)});
          EXPECT_TRUE(engine.step(1e-2).get().taken);
        }
        engine.settle_strategy();
        const MemoryReport here = own.context.memory(), host = own.context.host().memory();
        const auto bytes = [](std::size_t count) { return static_cast<std::int64_t>(count); };
        const std::vector<std::int64_t> measured{
            bytes(here[Purpose::optimizer].current), bytes(host[Purpose::optimizer].current),
            bytes(here[Purpose::bucket].peak), bytes(host[Purpose::bucket].peak), engine.strategy_traffic().sent()};
        const std::vector<std::int64_t> expected{plan.memory.optimizer, plan.memory.host, plan.memory.buckets,
                                                 plan.memory.host_buckets,
                                                 run.steps / plan.traffic.strategy_steps * plan.traffic.strategy};
        EXPECT_EQ(measured, expected) << maker()->describe() << ", stage " << run.stage << ", state on "
                                      << name_of(optimizer) << ", rank " << own.rank();
      });
  }
};

TEST_F(StrategyOnDevice, OfOuterStepsKeepsAndSendsWhatThePlanSaysWhereverTheOptimizerWorks) {
  KEEL_NEEDS_DEVICES(4);
  for (const OuterStepOptions& outer :
       {OuterStepOptions{.every = 2, .rate = 0.7, .momentum = 0.9, .nesterov = true, .repeats = true},
        {.every = 4, .momentum = 0.9, .fragments = 2, .delay = 1, .blend = 0.5},
        {.every = 2, .fragments = 2, .delay = 1, .repeats = true}})
    for (const int number : {0, 3})
      expect_plan([=] { return make_outer_steps(outer); }, {.steps = 4, .stage = number, .ranks = 4, .group = 2});
}

TEST_F(StrategyOnDevice, OfChunksKeepsAndSendsWhatThePlanSaysWhereverTheOptimizerWorks) {
  KEEL_NEEDS_DEVICES(3);
  const Run run{.steps = 1, .stage = 0, .ranks = 3, .group = 1};
  expect_plan([] { return make_sparse_outer_steps({.every = 1, .chunk = 48, .keep = 4}); }, run);
  expect_plan([] { return make_fast_components({.chunk = 48, .keep = 4}); }, run);
}

}  // namespace
}  // namespace keel
