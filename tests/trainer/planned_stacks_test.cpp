// What frozen models need: the engine's options for them, and their plans.

#include <gtest/gtest.h>

#include "keel/nn/layers.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/frozen_stack.h"
#include "keel/trainer/make_task.h"
#include "keel/trainer/stack.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

TEST(PlannedStacks, OfFrozenModelsHaveGroupsWhereTheyFitAndKeepNothingElsewhere) {
  const TemporaryFolder place;
  Linear model(4, 4);
  for (const auto& [group, ranks, fits] :
       {std::tuple(0, 4, 0), {2, 4, 2}, {2, 3, 0}, {3, 3, 3}, {4, 6, 0}, {3, 6, 3}}) {
    const Config config =
        small_run(place, "run",
                  {"strategy=zero3-bf16", concat("sharding.group=", group), "seed=9", "sharding.offload_optimizer=cpu",
                   "sharding.offload_gradients=cpu", "sharding.prefetch=3"});
    const ShardedOptions options = answering_options(config, model, ranks);
    EXPECT_EQ(options.sharding.group, fits) << group << " of " << ranks;
    EXPECT_EQ(options.sharding.virtual_ranks, 0);
    EXPECT_EQ(options.sharding.offload_optimizer, Residence::device);
    EXPECT_EQ(options.sharding.offload_gradients, Residence::device);
    EXPECT_EQ(options.sharding.stage, 3);
    EXPECT_EQ(options.sharding.prefetch, 3);
    EXPECT_EQ(options.policy.parameter, DType::bf16);
    EXPECT_EQ(options.seed, 9u);
    EXPECT_TRUE(options.name.empty());
  }
}

TEST(PlannedStacks, OfFrozenModelsAreAskedInEachMicroBatchOfEachVirtualRank) {
  const TemporaryFolder place;
  const auto plan = [&](std::vector<std::string> more, bool frozen, int passes = 1) {
    more.insert(more.begin(), {"strategy=zero3-fp32", "batch={global: 8, micro: 1}"});
    Linear model(4, 4);
    return PlannedStack(small_run(place, "run", more), model, 2, true, frozen, passes).plan(0);
  };
  const RankPlan plain = plan({}, true);
  EXPECT_GT(plain.traffic.gathers, 0);
  EXPECT_EQ(plan({"sharding.virtual_ranks=4"}, true).traffic.gathers, plain.traffic.gathers);
  EXPECT_EQ(plan({}, true, 3).traffic.gathers, 3 * plain.traffic.gathers);
  EXPECT_EQ(plan({"batch.micro=2"}, true).traffic.gathers * 2, plain.traffic.gathers);
  EXPECT_EQ(plain.memory.checkpoint, 0);
  EXPECT_EQ(plain.owned, 0);
  EXPECT_FALSE(plain.saves);
  EXPECT_EQ(plain.traffic.control, 0);
  EXPECT_EQ(plain.memory.gradient, 0);
  EXPECT_EQ(plain.memory.optimizer, 0);
  const RankPlan trained = plan({}, false);
  EXPECT_GT(trained.memory.checkpoint, 0);
  EXPECT_GT(trained.owned, 0);
  EXPECT_TRUE(trained.saves);
  EXPECT_GT(trained.traffic.control, 0);
  EXPECT_EQ(trained.memory.parameter, plain.memory.parameter);
}

TEST(PlannedStacks, OfOneModelAreItsPlanWithWhatAStrategyAndMatricesNeed) {
  const TemporaryFolder place;
  for (const char* more : {"outer={type: local_sgd, every: 4}", "outer={type: diloco, every: 4}",
                           "outer={type: streaming_diloco, every: 4}", "outer={type: sparse_loco, every: 4}",
                           "outer={type: demo}", "optimizer={type: Muon}"}) {
    const Config config = small_run(place, "run", {"strategy=zero1-fp32", "sharding.group=1", more});
    const std::unique_ptr<TaskBase> task = make_task(config);
    const StackModels models(*task);
    const bool has_matrices = config.optimizer.type == "Muon";
    EXPECT_EQ(transform_matrices(config, models), has_matrices);
    const RankPlan whole = plan_stacks(config, models, 4, 1, true),
                   own = PlannedStack(config, *models.all().front().module, 4, true).plan(1);
    EXPECT_EQ(whole.traffic.strategy, own.traffic.strategy) << more;
    EXPECT_EQ(whole.traffic.strategy_steps, own.traffic.strategy_steps) << more;
    EXPECT_EQ(whole.matrix_operations, own.matrix_operations) << more;
    EXPECT_EQ(whole.traffic.strategy > 0, !has_matrices) << more;
    EXPECT_EQ(whole.matrix_operations > 0, has_matrices) << more;
  }
}

}  // namespace
}  // namespace keel
