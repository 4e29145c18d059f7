// Hybrid sharding: shards are spread inside groups of ranks, and each group has all of them.

#include <gtest/gtest.h>

#include <mutex>

#include "keel/dist/plan/rank_plan.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

struct Groups {
  int ranks, group;
  std::vector<int> nodes() const {
    std::vector<int> node;
    for (int r = 0; r < ranks; ++r) node.push_back(r / group);
    return node;
  }
};
constexpr Groups kGroups[] = {{4, 2}, {6, 2}, {6, 3}, {4, 1}, {8, 4}};

struct GroupedOutcome {
  std::vector<double> weights, norms;
  std::int64_t across = 0;  // bytes that a rank sent to other nodes
  std::size_t state = 0;    // bytes of parameters, gradients and optimizer state of a rank
};

// A few steps; what the last rank ends with.
GroupedOutcome train_in_groups(const Groups& groups, ShardedOptions options, DType dtype, int micro_batches = 1) {
  options.policy = PrecisionPolicy::of(dtype);
  options.micro_batches = micro_batches;
  options.clip = 1;
  GroupedOutcome outcome;
  const auto run = [&](Communicator& comm) {
    const Context context = testing::context(1);
    UnitNet net;
    Sharded engine(net, context, comm, make_adamw(), options);
    const MemoryReport memory = context.memory();
    const std::int64_t before = engine.data_traffic().between_nodes;  // finding the groups
    std::vector<double> norms;
    for (int step = 0; step < 5; ++step) {
      for (int micro = 0; micro < micro_batches; ++micro) {
        const Tensor x = rows(context, step, comm, micro, micro_batches, 100, dtype);
        const Tensor y = rows(context, step, comm, micro, micro_batches, 900, dtype);
        engine.backward(mse_loss(net(x), Variable(y)), {.weight = x.dim(0), .last = micro + 1 == micro_batches});
      }
      const StepResult result = engine.step(1e-2).get();
      EXPECT_TRUE(result.taken);
      EXPECT_EQ(result.weight, kBatch);
      norms.push_back(result.grad_norm);
    }
    for (const auto& unit : engine.units()) unit->parameters().wait_gathered();
    const std::int64_t across = engine.data_traffic().between_nodes - before;
    const std::vector<double> weights = whole_values(engine);
    if (comm.rank() + 1 < comm.size()) return;
    outcome = {
        weights, norms, across,
        memory[Purpose::parameter].current + memory[Purpose::gradient].current + memory[Purpose::optimizer].current};
  };
  run_ranks(groups.ranks, run, {.algorithm = "hierarchical", .nodes = groups.nodes()});
  return outcome;
}

ShardedOptions grouped(int number, int group) {
  ShardedOptions options = stage(number);
  options.sharding.group = group;
  return options;
}

TEST(Hybrid, GivesTheBitsOfDataParallelTrainingWithThatNodeMap) {
  for (const Groups& groups : kGroups) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const GroupedOutcome reference = train_in_groups(groups, stage(0), dtype);
      for (const int number : {1, 2, 3}) {
        const GroupedOutcome outcome = train_in_groups(groups, grouped(number, groups.group), dtype);
        EXPECT_TRUE(outcome.weights == reference.weights)
            << groups.ranks << " ranks in groups of " << groups.group << ", stage " << number << ", " << dtype;
        // Fp64 sums of other parts; the clip factor rounds them to fp32.
        for (std::size_t i = 0; i < outcome.norms.size(); ++i) EXPECT_DOUBLE_EQ(outcome.norms[i], reference.norms[i]);
      }
    }
  }
}

TEST(Hybrid, GivesTheSameBitsInEveryStageWithMicroBatches) {
  const Groups groups{4, 2};
  const GroupedOutcome reference = train_in_groups(groups, stage(0), DType::bf16, 3);
  for (const int number : {1, 2, 3})
    EXPECT_TRUE(train_in_groups(groups, grouped(number, 2), DType::bf16, 3).weights == reference.weights)
        << "stage " << number;
}

// Also where each group is one rank, whose sum has nowhere to be scattered to.
TEST(Hybrid, GivesTheSameBitsInEveryStageWithMicroBatchesThatAreReducedOneByOne) {
  for (const int group : {1, 2}) {
    const Groups groups{4, group};
    const auto weights_of = [&](int number, Accumulation accumulation) {
      ShardedOptions options = grouped(number, group);
      options.sharding.accumulation = accumulation;
      return train_in_groups(groups, options, DType::f32, 3).weights;
    };
    const auto reference = weights_of(1, Accumulation::each_backward);
    for (const int number : {2, 3})
      EXPECT_TRUE(weights_of(number, Accumulation::each_backward) == reference)
          << "stage " << number << ", groups of " << group;
    EXPECT_LT(relative_error(reference, weights_of(1, Accumulation::deferred)), 1e-5) << "groups of " << group;
  }
}

TEST(Hybrid, NeedsTheMemoryOfAGroupAndGathersNothingAcrossGroups) {
  const Groups groups{6, 3};
  const GroupedOutcome hybrid = train_in_groups(groups, grouped(3, 3), DType::bf16),
                       three = train_in_groups({3, 3}, stage(3), DType::bf16);
  EXPECT_EQ(hybrid.state, three.state);
  // Across groups go the sums of the shards alone: an all-reduce between two of a third of the bf16 gradients.
  std::int64_t padded = 0;
  UnitNet net;
  for (const FlatBuffer& unit : lay_out(net, 3)) padded += unit.padded;
  EXPECT_EQ(hybrid.across, 5 * 2 * padded / 3);
}

TEST(Hybrid, GroupsThatDoNotDivideTheRanksAreOneClearLine) {
  try {
    run_ranks(4, [](Communicator& comm) {
      UnitNet net;
      Sharded engine(net, testing::context(1), comm, make_adamw(), grouped(2, 3));
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("groups of 3 ranks do not divide the 4"), std::string::npos);
  }
}

// What is saved, and what plans say of it: the ranks that save have every number once between them.
TEST(Hybrid, RanksThatSaveHaveEachNumberOnce) {
  for (const Groups& groups : {Groups{3, 0}, Groups{4, 2}, Groups{4, 1}, Groups{6, 3}})
    for (const int number : {0, 1, 2, 3}) {
      ShardedOptions options = stage(number);
      options.sharding.group = groups.group;
      std::int64_t weights = 0, state = 0, planned = 0, whole = 0;
      std::mutex mutex;
      run_ranks(groups.ranks, [&](Communicator& comm) {
        const Context context = testing::context(1);
        UnitNet net;
        Sharded engine(net, context, comm, make_adamw(), options);
        const std::vector<FlatBuffer> layout = lay_out(net, shard_ranks(options, comm.size()));
        const RankPlan plan = plan_rank(layout, *make_adamw(), options, comm.size(), comm.rank());
        const std::lock_guard lock(mutex);
        planned += plan.memory.checkpoint;
        if (comm.rank() == 0)
          for (const FlatBuffer& unit : layout) whole += unit.numel;
        if (!engine.holds_parts()) return;
        weights += static_cast<std::int64_t>(numbers_of(engine.weights()).size());
        state += static_cast<std::int64_t>(numbers_of(engine.optimizer_state()).size());
      });
      EXPECT_EQ(weights, whole) << groups.ranks << " ranks in groups of " << groups.group << ", stage " << number;
      EXPECT_EQ(state, 2 * whole) << groups.ranks << " ranks in groups of " << groups.group << ", stage " << number;
      EXPECT_EQ(planned, 3 * 4 * whole) << groups.ranks << " ranks in groups of " << groups.group << ", stage "
                                        << number;
    }
}

}  // namespace
}  // namespace keel
