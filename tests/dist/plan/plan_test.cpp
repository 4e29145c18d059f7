// Plans against the numbers of the design.

#include <gtest/gtest.h>

#include "keel/dist/plan/rank_plan.h"
#include "keel/optim/elementwise.h"
#include "tests/dist/parallel/planned_text.h"
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
    EXPECT_TRUE(plan.collectives.empty());
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
    return plan_rank(lay_out(model, 4), *make_adamw(), options, 4, 0, {.on_device = on_device}).memory;
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
    return plan_rank(lay_out(model, 4), optimizer, options, 4, rank, {.on_device = true}).traffic.offload;
  };
  const auto muon = make_elementwise("Muon", {.settings = MuonSettings{}});
  EXPECT_EQ(moved(*make_adamw(), 3), kUnits * kShard * kBytes * (1 + 1)) << "weights and gradients";
  EXPECT_EQ(moved(*muon, 0), kUnits * kShard * kBytes * (1 + 1));
  EXPECT_EQ(moved(*muon, 3), kUnits * kShard * kBytes * (1 + 2));
}

std::vector<std::string> collectives(const RankPlan& plan) {
  std::vector<std::string> all;
  for (const PlannedCollective& each : plan.collectives) all.push_back(text_of(each));
  return all;
}

// In bf16 a unit of 1,049,600 numbers.
TEST(Plan, HasTheCollectivesOfEachUnit) {
  struct One : Module {
    LargeNet::Layer layer;
    void visit(Visitor& v) override { v("layer", layer); }
  } model;
  const auto all = [&](const ShardedOptions& options) { return collectives(plan_of(model, 4, options)); };
  using All = std::vector<std::string>;
  const std::string gather = "all_gather of 1049600 x 2 among shards, of parameters",
                    scatter = "reduce_scatter of 1049600 x 2 among shards";
  EXPECT_EQ(all(in_bf16(0)), All{"1 x all_reduce of 1049600 x 2 among shards"});
  for (const int number : {1, 2}) EXPECT_EQ(all(in_bf16(number)), (All{"1 x " + gather, "1 x " + scatter}));
  EXPECT_EQ(all(in_bf16(3)), (All{"2 x " + gather, "1 x " + scatter}));
  ShardedOptions options = in_bf16(3, 3);
  EXPECT_EQ(all(options), (All{"6 x " + gather, "1 x " + scatter}));
  options.sharding.accumulation = Accumulation::each_backward;
  EXPECT_EQ(all(options), (All{"6 x " + gather, "3 x " + scatter}));
  options.sharding.reshard_after_forward = false;
  EXPECT_EQ(all(options), (All{"3 x " + gather, "3 x " + scatter}));
  options.sharding.stage = 0;
  EXPECT_EQ(all(options), (All{"3 x " + scatter, "1 x all_gather of 1049600 x 4 among shards"}));
  model.layer.linear.weight.set_trainable(false);
  model.layer.linear.bias.set_trainable(false);
  EXPECT_EQ(all(options), All{}) << "what never changes is never gathered";
}

// The first gather of a step is of all ranks, the others are of a subgroup, which keeps the weights among its ranks.
TEST(Plan, KeepsTheShardsOfASubgroupBesideItsOwn) {
  LargeNet model;
  for (const auto& [ranks, subgroup, kept] :
       {std::tuple(4, 2, 262'400 + 524'800), {8, 2, 131'200 + 524'800}, {8, 4, 131'200 + 262'400}}) {
    ShardedOptions options = in_bf16(3);
    options.sharding.secondary = true;
    options.sharding.subgroup = subgroup;
    const RankPlan plan = plan_of(model, ranks, options);
    EXPECT_EQ(plan.memory.parameter, 4 * 2 * kept) << ranks << " ranks, " << subgroup << " together";
    const std::string gather = "1 x all_gather of 1049600 x 2 among ";
    const std::vector<std::string> all = collectives(plan);
    ASSERT_EQ(all.size(), 4 * 3U);
    EXPECT_EQ(all[0], gather + "shards, of parameters");
    EXPECT_EQ(all[1], gather + "inside, of parameters");
    EXPECT_EQ(all[2], "1 x reduce_scatter of 1049600 x 2 among shards");
    options.sharding.secondary = false;
    EXPECT_EQ(plan_of(model, ranks, options).memory.parameter, 4 * 2 * (1'049'600 / ranks));
  }
}

// What it is asked, and an answer.
struct AskedCosts : CommunicationStrategy {
  AskedCosts(bool sums, std::vector<std::string>& asked) : sums(sums), asked(asked) {}
  std::string describe() const override { return "asked"; }
  void begin(const StrategySite&) override {}
  bool sums_gradients(const OptimizerRequirements&) const override { return sums; }
  StrategyCost cost(std::span<const StrategyNumbers> units, const StrategyPlace& place) const override {
    std::string text = concat("group ", place.group, " of ", place.groups, ':');
    for (const StrategyNumbers& unit : units) text += concat(' ', unit.count, " in ", unit.shards);
    asked.push_back(text);
    return {.state = 1000, .sent = 77, .every = 9, .at_once = 5, .held = 3};
  }
  bool sums;
  std::vector<std::string>& asked;
};

TEST(Plan, TellsAStrategyWhatARankUpdatesOfEachUnit) {
  LargeNet model;
  model.layers[1].linear.weight.set_trainable(false);
  model.layers[1].linear.bias.set_trainable(false);
  std::vector<std::string> asked;
  const auto planned = [&](int ranks, int rank, int number, bool has_strategy, bool sums = false) {
    ShardedOptions options = in_bf16(number);
    options.sharding.group = 2;
    if (has_strategy) options.strategy = [&asked, sums] { return std::make_unique<AskedCosts>(sums, asked); };
    return plan_of(model, ranks, options, rank);
  };
  for (const auto& [ranks, rank, number, what] :
       {std::tuple(4, 1, 0, "group 0 of 2: 1049600 in 2 1049600 in 2 1049600 in 2"),
        {4, 2, 0, "group 1 of 2: 1049600 in 2 1049600 in 2 1049600 in 2"},
        {4, 3, 1, "group 1 of 2: 524800 in 1 524800 in 1 524800 in 1"},
        {6, 5, 3, "group 2 of 3: 524800 in 1 524800 in 1 524800 in 1"}}) {
    asked.clear();
    const RankPlan with = planned(ranks, rank, number, true);
    EXPECT_EQ(asked, std::vector<std::string>{what});
    EXPECT_EQ(with.traffic.strategy, 77);
    EXPECT_EQ(with.traffic.strategy_steps, 9);
    EXPECT_EQ(with.memory.optimizer, planned(2, rank % 2, number, false).memory.optimizer + 1000);
  }
  asked.clear();
  const RankPlan sums = planned(4, 1, 1, true, true);
  EXPECT_EQ(asked, std::vector<std::string>{}) << "gradients are summed over the groups in its place";
  EXPECT_EQ(sums.traffic.strategy, 0);
  EXPECT_EQ(sums.traffic.strategy_steps, 1);
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

TEST(Plan, OfAModelWithoutParametersIsOfNothing) {
  struct Nothing : Module {
    void visit(Visitor&) override {}
  } model;
  for (const int number : {0, 1, 2, 3})
    for (const int ranks : {1, 2, 4})
      for (const Residence place : {Residence::device, Residence::host}) {
        ShardedOptions options = stage(number);
        options.micro_batches = 2;
        options.sharding.offload_parameters = options.sharding.offload_optimizer = place;
        options.sharding.keep_last_unit = true;
        const RankPlan plan = plan_of(model, ranks, options);
        EXPECT_EQ(plan.memory.kept() + plan.memory.buckets + plan.traffic.sent() + plan.owned, 0)
            << "stage " << number << ", " << ranks << " ranks";
        EXPECT_TRUE(plan.collectives.empty());
      }
}

}  // namespace
}  // namespace keel
