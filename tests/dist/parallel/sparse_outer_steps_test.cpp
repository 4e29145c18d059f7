// SparseLoCo: outer steps of which the largest numbers travel, in two bits each.

#include "keel/dist/strategies/sparse_outer_steps.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "keel/dist/plan/rank_plan.h"
#include "keel/dist/strategies/outer_steps.h"
#include "tests/dist/parallel/group_runs.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr SparseOuterStepOptions kSparse = {.every = 3, .rate = 0.8, .decay = 0.9, .chunk = 100, .keep = 7};
constexpr SparseOuterStepOptions kSparseExact = {
    .every = 2, .rate = 1, .decay = 0.5, .chunk = 64, .keep = 3, .bits = 32};

// Among the largest numbers of the last chunk are those behind the last parameter, which arrive as others do.
constexpr SparseOuterStepOptions kCrowded = {.every = 3, .rate = 0.8, .decay = 0.9, .chunk = 100, .keep = 95};

ShardedOptions with_sparse(int number, const SparseOuterStepOptions& sparse, int group = 0) {
  ShardedOptions options = stage(number);
  options.sharding.group = group;
  options.strategy = [sparse] { return make_sparse_outer_steps(sparse); };
  return options;
}

TEST(SparseOuterSteps, OfAllNumbersInAllBitsAreOuterStepsWithoutMomentumToTheBit) {
  for (const double rate : {1.0, 0.7})
    for (const auto& [ranks, group] : {std::pair{2, 1}, {3, 1}, {4, 2}}) {
      GroupRun run{.ranks = ranks, .group = group};
      run.options = with_sparse(0, {.every = 3, .rate = rate, .chunk = 32, .keep = 32, .bits = 32});
      const GroupResult sparse = trained_in_groups(run);
      run.options.strategy = [rate = rate] { return make_outer_steps({.every = 3, .rate = rate}); };
      EXPECT_TRUE(trained_in_groups(run).weights == sparse.weights) << ranks << " ranks, rate " << rate;
    }
}

TEST(SparseOuterSteps, GiveTheSameBitsInEveryStage) {
  for (const SparseOuterStepOptions& sparse : {kSparse, kSparseExact, kCrowded})
    for (const auto& [n, group, dtype] :
         std::vector<std::tuple<int, int, DType>>{{4, 2, DType::bf16}, {3, 1, DType::f32}}) {
      GroupRun run{.ranks = n, .group = group, .options = with_sparse(0, sparse), .dtype = dtype};
      const GroupResult expected = trained_in_groups(run);
      run.delays = 3;
      for (const int number : {0, 1, 2, 3}) {
        run.options = with_sparse(number, sparse);
        EXPECT_TRUE(trained_in_groups(run).weights == expected.weights)
            << make_sparse_outer_steps(sparse)->describe() << ", " << n << " ranks, stage " << number << ", " << dtype;
      }
    }
}

TEST(SparseOuterSteps, BringGroupsTogether) {
  for (const int steps : {6, 7}) {
    const GroupResult result =
        trained_in_groups({.ranks = 4, .group = 2, .steps = steps, .options = with_sparse(1, kSparse)});
    EXPECT_EQ(result.weights[0], result.weights[1]);
    EXPECT_EQ(result.weights[0] == result.weights[2], steps % kSparse.every == 0);
  }
}

TEST(SparseOuterSteps, GoOnInTheMiddleOfAWindowToTheSameBits) {
  for (const auto& [number, sparse] : {std::pair{0, kSparse}, {3, kSparse}, {0, kCrowded}, {3, kCrowded}})
    for (const int stop : {1, 3, 5})
      run_ranks(4, [&, stage = number, sparse = sparse](Communicator& comm) {
        const ShardedOptions options = with_sparse(stage, sparse, 2);
        UnitNet whole_net, first_net, second_net;
        Sharded whole(whole_net, testing::context(1), comm, make_adamw(), options);
        Sharded first(first_net, testing::context(1), comm, make_adamw(), options);
        for (int step = 0; step < 8; ++step) train_step(whole, whole_net, comm, step, DType::f32, 1e-2);
        for (int step = 0; step < stop; ++step) train_step(first, first_net, comm, step, DType::f32, 1e-2);
        Sharded second(second_net, testing::context(1), comm, make_adamw(), options);
        second.load_weights(first.weights());
        second.load_optimizer_state(first.optimizer_state(), first.state());
        EXPECT_EQ(doubles(first.strategy_state().back().values), std::vector<double>{static_cast<double>(stop)});
        second.load_strategy_state(first.strategy_state());
        for (int step = stop; step < 8; ++step) train_step(second, second_net, comm, step, DType::f32, 1e-2);
        EXPECT_TRUE(whole_values(second) == whole_values(whole))
            << "stage " << stage << ", " << sparse.keep << " of a chunk, stopped after " << stop;
      });
}

TEST(SparseOuterSteps, SendAndKeepWhatThePlanSays) {
  for (const SparseOuterStepOptions& sparse : {kSparse, kSparseExact})
    for (const int number : {0, 2, 3}) {
      const ShardedOptions options = with_sparse(number, sparse, 2);
      const int windows = 2, steps = static_cast<int>(sparse.every * windows);
      UnitNet planned;
      const RankPlan plan = plan_rank(lay_out(planned, shard_ranks(options, 4)), *make_adamw(), options, 4, 0);
      EXPECT_EQ(plan.traffic.strategy_steps, sparse.every);
      const GroupResult result = trained_in_groups({.ranks = 4, .group = 2, .steps = steps, .options = options});
      EXPECT_EQ(result.across, windows * plan.traffic.strategy);
      run_ranks(4, [&](Communicator& comm) {
        UnitNet net;
        const Context context = testing::context(1);
        Sharded engine(net, context, comm, make_adamw(), options);
        for (int step = 0; step < steps; ++step) train_step(engine, net, comm, step, DType::f32, 1e-2);
        if (comm.rank() == 0) {
          EXPECT_EQ(static_cast<std::int64_t>(context.memory()[Purpose::optimizer].current), plan.memory.optimizer);
        }
      });
    }
}

}  // namespace
}  // namespace keel
