// DeMo: momenta of groups, of which the fast components travel.

#include "keel/dist/strategies/fast_components.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numbers>
#include <tuple>

#include "keel/dist/comm/decorators.h"
#include "keel/dist/plan/rank_plan.h"
#include "tests/dist/parallel/sharding_support.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr FastComponentsOptions kFew = {.decay = 0.9, .chunk = 16, .keep = 3};
// No shard has whole chunks, and components of the last one reach behind the last parameter.
constexpr FastComponentsOptions kUneven = {.decay = 0.9, .chunk = 50, .keep = 3};

ShardedOptions with_components(int number, int group, const FastComponentsOptions& fast = kFew) {
  ShardedOptions options = stage(number);
  options.sharding.group = group;
  options.strategy = [fast] { return make_fast_components(fast); };
  return options;
}

void step_of(Sharded& engine, const UnitNet& net, Communicator& comm, int step, DType dtype, double factor = 1) {
  const Tensor x = rows(engine.context(), step, comm, 0, 1, 100, dtype);
  const Tensor y = rows(engine.context(), step, comm, 0, 1, 900, dtype);
  engine.backward(scale(mse_loss(net(x), Variable(y)), factor), {.weight = x.dim(0)});
  EXPECT_EQ(engine.step(0.1).get().taken, std::isfinite(factor));
}

// What all ranks have, which is the same, after some steps; in one of them the loss of rank 0 is not finite.
std::vector<double> trained_on(int ranks, const ShardedOptions& made, DType dtype, std::uint64_t delays = 0,
                               int steps = 5, int bad_step = -1) {
  ShardedOptions options = made;
  options.policy = PrecisionPolicy::of(dtype);
  std::vector<double> result;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& direct) {
    DelayedCommunicator comm(direct, delays, std::chrono::microseconds(delays == 0 ? 0 : 300));
    UnitNet net;
    Sharded engine(net, testing::context(1), comm, make_sgd(), options);
    for (int step = 0, good = 0; step < steps; ++step)
      if (step == bad_step) step_of(engine, net, comm, 17, dtype, INFINITY);
      else step_of(engine, net, comm, good++, dtype);
    const std::vector<double> weights = whole_values(engine);
    const std::lock_guard lock(mutex);
    if (result.empty()) result = weights;
    EXPECT_TRUE(weights == result) << "rank " << comm.rank();
  });
  return result;
}

TEST(FastComponents, GiveAllGroupsTheSameBitsInEveryStage) {
  for (const auto& [ranks, group, dtype] :
       std::vector<std::tuple<int, int, DType>>{{2, 1, DType::f32}, {4, 2, DType::bf16}, {3, 1, DType::f32}}) {
    for (const FastComponentsOptions& fast : {kFew, kUneven}) {
      const std::vector<double> expected = trained_on(ranks, with_components(0, group, fast), dtype);
      for (const int number : {0, 1, 2, 3})
        EXPECT_TRUE(trained_on(ranks, with_components(number, group, fast), dtype, 3) == expected)
            << ranks << " ranks, stage " << number << ", " << dtype << ", chunks of " << fast.chunk;
    }
  }
}

// With all components and no momentum that is kept, the gradient is the mean over groups.
TEST(FastComponents, OfEverythingAreDataParallelTraining) {
  const FastComponentsOptions all = {.decay = 0, .chunk = 32, .keep = 32};
  ShardedOptions plain = stage(1);
  // A group divides by the rows of its own ranks, and the sum of two groups' gradients by those of all.
  EXPECT_LT(relative_error(trained_on(2, with_components(1, 1, all), DType::f32), trained_on(2, plain, DType::f32)),
            1e-5);
}

TEST(FastComponents, OfASkippedStepLeaveNothing) {
  for (const int number : {0, 3})
    EXPECT_TRUE(trained_on(4, with_components(number, 2), DType::f32, 0, 6, 2) ==
                trained_on(4, with_components(number, 2), DType::f32, 0, 5))
        << "stage " << number;
}

TEST(FastComponents, OfAScaledLossAreTheSame) {
  ShardedOptions scaled = with_components(2, 1);
  scaled.loss_scale = 1024;
  scaled.scaling = {.growth = 2, .backoff = 0.5, .interval = 2};
  EXPECT_LT(relative_error(trained_on(2, scaled, DType::f32), trained_on(2, with_components(2, 1), DType::f32)), 1e-6);
}

TEST(FastComponents, GoOnToTheSameBitsAndSendWhatThePlanSays) {
  for (const auto& [number, fast] : {std::pair{0, kFew}, {3, kFew}, {0, kUneven}, {3, kUneven}}) {
    const ShardedOptions options = with_components(number, 2, fast);
    run_ranks(4,
              [&](Communicator& comm) {
                UnitNet whole_net, first_net, second_net, planned;
                const Context context = testing::context(1);
                Sharded whole(whole_net, context, comm, make_sgd(), options);
                std::int64_t before = 0;
                for (int step = 0; step < 6; ++step) {
                  before = whole.data_traffic().between_nodes;
                  step_of(whole, whole_net, comm, step, DType::f32);
                }
                const RankPlan plan =
                    plan_rank(lay_out(planned, shard_ranks(options, 4)), *make_sgd(), options, 4, comm.rank());
                EXPECT_EQ(whole.data_traffic().between_nodes - before, plan.traffic.strategy);
                EXPECT_EQ(static_cast<std::int64_t>(context.memory()[Purpose::optimizer].current),
                          plan.memory.optimizer);
                Sharded first(first_net, testing::context(1), comm, make_sgd(), options);
                for (int step = 0; step < 3; ++step) step_of(first, first_net, comm, step, DType::f32);
                Sharded second(second_net, testing::context(1), comm, make_sgd(), options);
                second.load_weights(first.weights());
                second.load_optimizer_state(first.optimizer_state(), first.state());
                EXPECT_EQ(doubles(first.strategy_state().back().values), std::vector<double>{3});
                second.load_strategy_state(first.strategy_state());
                for (int step = 3; step < 6; ++step) step_of(second, second_net, comm, step, DType::f32);
                EXPECT_TRUE(whole_values(second) == whole_values(whole)) << options.sharding.stage;
              },
              {.nodes = {0, 0, 1, 1}});
  }
}

}  // namespace
}  // namespace keel
