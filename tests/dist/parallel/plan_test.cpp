// Plans against the numbers of the design.

#include <gtest/gtest.h>

#include "keel/dist/parallel/plan.h"
#include "keel/optim/elementwise.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

ShardedOptions in_bf16(int number, int micro_batches = 1) {
  ShardedOptions options = stage(number);
  options.policy = {.parameter = DType::bf16, .gradient = micro_batches > 1 ? DType::f32 : DType::bf16};
  options.micro_batches = micro_batches;
  return options;
}

RankPlan plan_of(Module& model, int ranks, const ShardedOptions& options, int rank = 0) {
  return plan_rank(lay_out(model, shard_ranks(options, ranks)), *make_adamw(), options, ranks, rank);
}

std::int64_t sent(int ranks, const ShardedOptions& options) {
  LargeNet model;
  return plan_of(model, ranks, options).traffic.sent();
}

TEST(Plan, SendsTheBytesOfTheDesign) {
  for (const int number : {0, 1, 2}) {
    EXPECT_EQ(sent(4, in_bf16(number)), 12'595'200) << "stage " << number;
    EXPECT_EQ(sent(3, in_bf16(number)), 11'198'464) << "stage " << number;
    EXPECT_EQ(sent(8, in_bf16(number)), 14'694'400) << "stage " << number;
  }
  EXPECT_EQ(sent(4, in_bf16(3)), 18'892'800);
  EXPECT_EQ(sent(3, in_bf16(3)), 16'797'696);
  EXPECT_EQ(sent(8, in_bf16(3)), 22'041'600);
  ShardedOptions kept = in_bf16(3);
  kept.sharding.keep_last_unit = true;
  EXPECT_EQ(sent(4, kept), 17'318'400);
  for (const int number : {1, 2}) {
    ShardedOptions wide = in_bf16(number);
    wide.wire = DType::f32;
    EXPECT_EQ(sent(4, wide), 18'892'800) << "stage " << number;
  }
}

TEST(Plan, SendsTheBytesOfTheDesignInFourMicroBatches) {
  for (const int number : {0, 1, 2}) EXPECT_EQ(sent(4, in_bf16(number, 4)), 12'595'200) << "stage " << number;
  EXPECT_EQ(sent(4, in_bf16(3, 4)), 56'678'400);
  const std::int64_t each[] = {37'785'600, 31'488'000, 31'488'000, 75'571'200};
  for (const int number : {0, 1, 2, 3}) {
    ShardedOptions options = in_bf16(number, 4);
    options.sharding.accumulation = Accumulation::each_backward;
    EXPECT_EQ(sent(4, options), each[number]) << "stage " << number;
  }
}

TEST(Plan, KeepsTheBytesOfTheDesign) {
  const std::int64_t expected[][4] = {{67'190'784, 33'595'392, 27'996'160, 22'396'928},
                                      {67'174'400, 29'388'800, 23'091'200, 16'793'600},
                                      {67'174'400, 23'091'200, 15'744'000, 8'396'800}};
  const int ranks[] = {3, 4, 8};
  LargeNet model;
  for (std::size_t row = 0; row < 3; ++row)
    for (const int number : {0, 1, 2, 3})
      EXPECT_EQ(plan_of(model, ranks[row], in_bf16(number)).memory.kept(), expected[row][number])
          << "stage " << number << ", " << ranks[row] << " ranks";
}

// Per unit of 2,099,200 bytes: at prefetch 1 two are whole, and the gradients of one while those before are summed.
TEST(Plan, HoldsTwoWholeUnitsAndTwoWholeGradientsAtOnceInStageThree) {
  LargeNet model;
  const MemoryPlan memory = plan_of(model, 4, in_bf16(3)).memory;
  EXPECT_EQ(memory.gathered, 2 * 2'099'200);
  EXPECT_EQ(memory.whole_gradients, 2 * 2'099'200);
  EXPECT_EQ(memory.buckets, 4 * 2'099'200);
  EXPECT_EQ(plan_of(model, 4, in_bf16(1)).memory.buckets, 0);
  EXPECT_EQ(plan_of(model, 4, in_bf16(2)).memory.buckets, 2 * 2'099'200);
}

TEST(Plan, OfOneRankSendsNothingAndKeepsAll) {
  LargeNet model;
  for (const int number : {0, 1, 2, 3}) {
    const RankPlan plan = plan_of(model, 1, in_bf16(number));
    EXPECT_EQ(plan.traffic.sent() + plan.traffic.control, 0);
    EXPECT_EQ(plan.memory.kept(), std::int64_t{4} * 1024 * 1025 * 16);
    EXPECT_EQ(plan.memory.buckets, 0);
    ShardedOptions options = in_bf16(number, 4);
    const std::int64_t kept = plan_of(model, 1, options).memory.kept();
    options.sharding.accumulation = Accumulation::each_backward;
    EXPECT_EQ(plan_of(model, 1, options).memory.kept(), kept) << "there is nothing to add up among ranks";
  }
}

TEST(Plan, KeepsAsMuchForTwoMicroBatchesAsForMore) {
  LargeNet model;
  for (const int number : {0, 1, 2, 3}) {
    EXPECT_EQ(plan_of(model, 4, in_bf16(number, 2)).memory.kept(), plan_of(model, 4, in_bf16(number, 4)).memory.kept());
    EXPECT_GT(plan_of(model, 4, in_bf16(number, 2)).memory.kept(), plan_of(model, 4, in_bf16(number)).memory.kept());
  }
}

TEST(Plan, OfAnOffloadedOptimizerMovesGradientsAndWeightsOnce) {
  LargeNet model;
  ShardedOptions options = in_bf16(2);
  options.sharding.offload_optimizer = Residence::host;
  const RankPlan plan = plan_of(model, 4, options);
  EXPECT_EQ(plan.memory.optimizer, 0);
  EXPECT_EQ(plan.memory.host, 14 * 1'049'600);
  EXPECT_EQ(plan.traffic.offload, 4'198'400);
  EXPECT_EQ(plan.memory.buckets, 2 * 2'099'200) << "sums of gradients; weights come straight back";
  EXPECT_EQ(plan.memory.host_buckets, 2 * 1'049'600) << "all gradients, in bf16";
  options.sharding.stage = 1;
  EXPECT_EQ(plan_of(model, 4, options).memory.buckets, 0);
}

// While one is written, the next one comes from the device. An update that has room for one at a time reads no more.
TEST(Plan, HasTwoGradientsOfADeviceInTheProcessorsMemoryOnTheirWayToAFile) {
  LargeNet model;
  ShardedOptions options = in_bf16(1);
  options.sharding.offload_gradients = Residence::file;
  options.sharding.offload_budget = 2'099'200;
  const auto memory = [&](bool on_device) {
    return plan_rank(lay_out(model, 4), *make_adamw(), options, 4, 0, {}, "direct", on_device).memory;
  };
  EXPECT_EQ(memory(true).host_buckets, 2 * 2'099'200);
  EXPECT_EQ(memory(true).host, 0);
  EXPECT_EQ(memory(false).host_buckets, 0);
  options.sharding.offload_budget = 4 * 2'099'200;
  EXPECT_EQ(memory(true).host_buckets, 4 * 2'099'200) << "read ahead as far as the budget goes";
  options.sharding.offload_gradients = Residence::host;
  EXPECT_EQ(memory(false).host, 4 * 2'099'200);
  EXPECT_EQ(memory(false).host_buckets, 0) << "what lies there is no copy on its way";
}

// A unit's update reads its gradient for matrices, and once more for what else it has: the last shard has biases.
TEST(Plan, MovesAGradientOfADeviceOnceForMatricesAndOnceForTheOthers) {
  LargeNet model;
  ShardedOptions options = in_bf16(1);
  options.sharding.offload_optimizer = Residence::file;
  options.sharding.offload_budget = 1 << 30;
  constexpr std::int64_t kUnits = 4, kShard = 262'400, kBytes = 2;
  const auto moved = [&](const Optimizer& optimizer, int rank) {
    return plan_rank(lay_out(model, 4), optimizer, options, 4, rank, {}, "direct", /*on_device=*/true).traffic.offload;
  };
  const auto muon = make_elementwise("Muon", {.settings = MuonSettings{}});
  EXPECT_EQ(moved(*make_adamw(), 3), kUnits * kShard * kBytes * (1 + 1)) << "weights and gradients";
  EXPECT_EQ(moved(*muon, 0), kUnits * kShard * kBytes * (1 + 1));
  EXPECT_EQ(moved(*muon, 3), kUnits * kShard * kBytes * (1 + 2));
}

TEST(Plan, NamesARankOrStageThatThereIsNot) {
  LargeNet model;
  EXPECT_THROW(plan_of(model, 2, in_bf16(0), 2), Error);
  EXPECT_THROW(plan_rank(lay_out(model), *make_adamw(), in_bf16(0), 0, 0), Error);
  EXPECT_THROW(plan_of(model, 2, in_bf16(4)), Error);
}

TEST(Plan, KnowsOptimizersWithoutMasters) {
  LargeNet model;
  const std::unique_ptr<Optimizer> rounding = make_adamw({.stochastic_rounding = true});
  const RankPlan plan = plan_rank(lay_out(model, 4), *rounding, in_bf16(1), 4, 0);
  EXPECT_EQ(plan.memory.optimizer, std::int64_t{1024} * 1025 * 8) << "two states of fp32, no master";
}

}  // namespace
}  // namespace keel
