// Plans against the bytes of the copies that asynchronous saves make.

#include <gtest/gtest.h>

#include "keel/dist/checkpoint/snapshot.h"
#include "keel/dist/plan/rank_plan.h"
#include "keel/dist/strategies/fast_components.h"
#include "keel/dist/strategies/outer_steps.h"
#include "keel/dist/strategies/sparse_outer_steps.h"
#include "keel/optim/elementwise.h"
#include "keel/optim/lbfgs.h"
#include "tests/dist/checkpoint/checkpoint_support.h"
#include "tests/dist/parallel/observing_net.h"
#include "tests/kernels/every_rule.h"

namespace keel {
namespace {

using namespace testing;

// Every second layer is frozen.
struct HalfFrozen : UnitNet {
  HalfFrozen() {
    for (std::size_t i = 0; i < layers.size(); i += 2) {
      layers[i].linear.weight.set_trainable(false);
      layers[i].linear.bias.set_trainable(false);
    }
  }
};

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>()>;

template <class Model>
void expect_as_planned(const std::string& what, int size, const ShardedOptions& options, const MakeOptimizer& make) {
  run_ranks(size, [&](Communicator& ranks) {
    Model planned, model;
    const std::vector<FlatBuffer> layout = lay_out(planned, shard_ranks(options, size), make()->requirements().block);
    const RankPlan plan = plan_rank(layout, *make(), options, size, ranks.rank(), {.buffers = count_buffers(planned)});
    const Context context = testing::context(1);
    const Sharded engine(model, context, ranks, make(), options);
    const FileNumber number = number_files(engine, ranks);
    const std::size_t before = context.memory()[Purpose::checkpoint].current;
    const Snapshot snapshot(sections_of(engine, number));
    EXPECT_EQ(static_cast<std::int64_t>(context.memory()[Purpose::checkpoint].current - before), plan.memory.checkpoint)
        << what << ", stage " << options.sharding.stage << ", rank " << ranks.rank() << " of " << size;
  });
}

const MakeOptimizer kAdamW = [] { return make_adamw({}); };

TEST(SnapshotPlan, IsWhatIsCopiedInEveryStagePrecisionAndGroup) {
  for (const int number : {0, 1, 2, 3})
    for (const int size : {1, 2, 3, 4})
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const int group : {0, 1, 2}) {
          ShardedOptions options = stage(number);
          options.policy = PrecisionPolicy::of(dtype);
          options.sharding.group = group;
          if (group > 0 && size % group != 0) continue;
          const std::string what = concat(dtype, ", group ", group);
          expect_as_planned<UnitNet>(what, size, options, kAdamW);
          expect_as_planned<HalfFrozen>(what + ", half of it frozen", size, options, kAdamW);
          expect_as_planned<ObservingNet>(what + ", with buffers", size, options, kAdamW);
        }
}

TEST(SnapshotPlan, KnowsTheStateOfEveryOptimizer) {
  for (const RuleCase& rule : every_rule())
    for (const int number : {0, 2, 3}) {
      ShardedOptions options = bf16_stage(number);
      expect_as_planned<UnitNet>(rule.name, 3, options,
                                 [&] { return make_elementwise("test", {.settings = rule.settings}); });
    }
  for (const int number : {0, 2, 3})
    expect_as_planned<UnitNet>("L-BFGS", 3, stage(number), [] { return make_lbfgs(); });
}

TEST(SnapshotPlan, CountsWhatCompressionHasNotDelivered) {
  using Type = Compression::Type;
  for (const Type type : {Type::bf16, Type::int8, Type::top_k, Type::power_sgd})
    for (const int number : {0, 1, 2, 3})
      for (const int size : {1, 2, 3}) {
        ShardedOptions options = bf16_stage(number);
        options.compression = {.type = type, .fraction = 0.1, .rank = 2};
        expect_as_planned<UnitNet>(concat(options.compression.kind().name), size, options, kAdamW);
        expect_as_planned<HalfFrozen>(concat(options.compression.kind().name), size, options, kAdamW);
      }
}

// Groups that train alone have weights of their own, and a strategy has a state.
TEST(SnapshotPlan, CountsWhatGroupsAndTheirStrategiesSave) {
  const StrategyMaker makers[] = {
      [] { return make_outer_steps({.every = 2}); },
      [] { return make_outer_steps({.every = 3, .momentum = 0.9, .fragments = 2, .delay = 1, .blend = 0.5}); },
      [] { return make_sparse_outer_steps({.every = 2, .chunk = 100, .keep = 4}); },
      [] { return make_fast_components({.chunk = 16, .keep = 4}); }};
  for (const StrategyMaker& maker : makers)
    for (const int number : {0, 2, 3})
      for (const int group : {1, 2}) {
        ShardedOptions options = bf16_stage(number);
        options.sharding.group = group;
        options.strategy = maker;
        const std::string what = concat(maker()->describe(), ", group ", group);
        expect_as_planned<UnitNet>(what, 4, options, kAdamW);
        expect_as_planned<HalfFrozen>(what + ", half of it frozen", 4, options, kAdamW);
      }
}

}  // namespace
}  // namespace keel
