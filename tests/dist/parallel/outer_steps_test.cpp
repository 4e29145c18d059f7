// Outer steps of groups: local SGD, DiLoCo and its streaming form.

#include "keel/dist/strategies/outer_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "keel/dist/plan/rank_plan.h"
#include "tests/dist/parallel/group_runs.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr OuterStepOptions kLocalSgd = {.every = 3};
constexpr OuterStepOptions kDiLoCo = {.every = 3, .rate = 0.7, .momentum = 0.9, .nesterov = true};
constexpr OuterStepOptions kStreaming = {
    .every = 4, .rate = 0.7, .momentum = 0.9, .nesterov = true, .fragments = 2, .delay = 1, .blend = 0.5};
constexpr OuterStepOptions kPolyak = {.every = 2, .rate = 0.5, .momentum = 0.5};
constexpr OuterStepOptions kAll[] = {kLocalSgd, kDiLoCo, kStreaming, kPolyak};

ShardedOptions with_outer(int number, const OuterStepOptions& outer) {
  ShardedOptions options = stage(number);
  options.strategy = [outer] { return make_outer_steps(outer); };
  return options;
}

// An outer step after every step, of rate 1 and without momentum.
TEST(OuterSteps, AfterEveryStepAreDataParallelTrainingToTheBit) {
  for (const int n : {2, 3, 4})
    for (const int group : {1, 2})
      for (const int number : {0, 1, 2, 3}) {
        if (n % group != 0 || n == group) continue;
        GroupRun run{.ranks = n, .group = group, .options = with_outer(number, {}), .inner = plain_sgd, .rate = 0.1};
        const GroupResult together = trained_in_groups(run);
        // Without a strategy stage 0 knows no groups; its sums are then those of the other stages.
        run.options = stage(group == 1 || number > 0 ? number : 1);
        EXPECT_TRUE(trained_in_groups(run).weights == together.weights)
            << n << " ranks in groups of " << group << ", stage " << number;
      }
}

// With another optimizer inside the mean of its updates is not its update by the mean.
TEST(OuterSteps, AfterEveryStepOfAdamAreTheMeanOfItsSteps) {
  GroupRun run{.options = with_outer(0, {})};
  const GroupResult outer = trained_in_groups(run);
  EXPECT_EQ(outer.weights[0], outer.weights[1]);
  run.options = stage(0);
  EXPECT_FALSE(trained_in_groups(run).weights == outer.weights);
}

// The same by two engines that know nothing of each other, whose weights are put in between, in double precision.
std::vector<double> reference(const OuterStepOptions& outer, int steps, double rate) {
  constexpr int kGroups = 2;
  std::vector<double> result;
  run_ranks(kGroups, [&](Communicator& comm) {
    const Context context = testing::context(1);
    UnitNet net;
    Sharded engine(net, context, make_adamw(), stage(0));
    struct Unit {
      std::vector<double> anchor, momentum, travelling;
    };
    std::vector<Unit> units;
    for (const auto& unit : engine.units()) {
      units.push_back({doubles(unit->parameters().own_weights()), {}, {}});
      units.back().momentum.assign(units.back().anchor.size(), 0);
    }
    const auto mean_over_groups = [&](const std::vector<double>& mine) {
      const Tensor all = empty(context, {kGroups, static_cast<std::int64_t>(mine.size())}, DType::f64);
      const Tensor own = tensor_of(context, mine, {static_cast<std::int64_t>(mine.size())}, DType::f64);
      comm.all_gather(own, all.flatten()).wait();
      const std::vector<double> both = doubles(all);
      std::vector<double> mean(mine.size());
      for (std::size_t i = 0; i < mine.size(); ++i) mean[i] = (both[i] + both[mine.size() + i]) / kGroups;
      return mean;
    };
    for (int step = 0; step < steps; ++step) {
      train_step(engine, net, comm, step, DType::f32, rate);
      for (std::size_t u = 0; u < units.size(); ++u) {
        Unit& unit = units[u];
        const Tensor& weights = engine.units()[u]->parameters().own_weights();
        const auto due = [&](std::int64_t done) {
          const std::int64_t fragment = static_cast<std::int64_t>(u) % outer.fragments;
          return done > 0 && (done + fragment * (outer.every / outer.fragments)) % outer.every == 0;
        };
        if (due(step + 1)) {
          std::vector<double> difference = doubles(weights);
          for (std::size_t i = 0; i < difference.size(); ++i) difference[i] = unit.anchor[i] - difference[i];
          unit.travelling = mean_over_groups(difference);
        }
        if (!due(step + 1 - outer.delay)) continue;
        std::vector<double> now = doubles(weights);
        for (std::size_t i = 0; i < now.size(); ++i) {
          const double g = unit.travelling[i], b = unit.momentum[i] = outer.momentum * unit.momentum[i] + g;
          unit.anchor[i] -= outer.rate * (outer.nesterov ? g + outer.momentum * b : b);
          now[i] = outer.blend * unit.anchor[i] + (1 - outer.blend) * now[i];
        }
        kernels::copy_into(weights, tensor_of(context, now, {static_cast<std::int64_t>(now.size())}));
      }
      engine.adopt_weights();
    }
    if (comm.rank() == 0) result = whole_values(engine);
  });
  return result;
}

TEST(OuterSteps, AreThoseOfTheirFormula) {
  for (const OuterStepOptions& outer : kAll) {
    const GroupResult result = trained_in_groups({.options = with_outer(0, outer)});
    EXPECT_LT(relative_error(result.weights[0], reference(outer, 7, 1e-2)), 1e-6)
        << make_outer_steps(outer)->describe();
  }
}

class OuterStepsOf : public ::testing::TestWithParam<OuterStepOptions> {};
INSTANTIATE_TEST_SUITE_P(Each, OuterStepsOf, ::testing::ValuesIn(kAll));

TEST_P(OuterStepsOf, GiveTheSameBitsInEveryStage) {
  const OuterStepOptions& outer = GetParam();
  for (const auto& [n, group, dtype] : std::vector<std::tuple<int, int, DType>>{
           {4, 2, DType::bf16}, {6, 3, DType::f32}, {3, 1, DType::f32}, {2, 1, DType::bf16}}) {
    const GroupRun first{.ranks = n, .group = group, .options = with_outer(0, outer), .dtype = dtype};
    const GroupResult expected = trained_in_groups(first);
    for (const int number : {0, 1, 2, 3}) {
      GroupRun run = first;
      run.options = with_outer(number, outer);
      run.delays = 3;
      EXPECT_TRUE(trained_in_groups(run).weights == expected.weights)
          << make_outer_steps(outer)->describe() << ", " << n << " ranks, stage " << number << ", " << dtype;
    }
  }
}

TEST(OuterSteps, BringGroupsTogether) {
  const GroupResult at_the_end =
      trained_in_groups({.ranks = 4, .group = 2, .steps = 6, .options = with_outer(1, kDiLoCo)});
  for (const std::vector<double>& weights : at_the_end.weights) EXPECT_EQ(weights, at_the_end.weights[0]);
  const GroupResult between =
      trained_in_groups({.ranks = 4, .group = 2, .steps = 7, .options = with_outer(1, kDiLoCo)});
  EXPECT_EQ(between.weights[0], between.weights[1]);
  EXPECT_NE(between.weights[0], between.weights[2]);
}

TEST_P(OuterStepsOf, GoOnInTheMiddleOfAWindowToTheSameBits) {
  const OuterStepOptions& outer = GetParam();
  for (const int number : {0, 3})
    for (const int stop : {1, 4, 5}) {
      ShardedOptions options = with_outer(number, outer);
      options.sharding.group = 2;
      run_ranks(4, [&](Communicator& comm) {
        UnitNet whole_net, first_net, second_net;
        Sharded whole(whole_net, testing::context(1), comm, make_adamw(), options);
        Sharded first(first_net, testing::context(1), comm, make_adamw(), options);
        for (int step = 0; step < 8; ++step) train_step(whole, whole_net, comm, step, DType::f32, 1e-2);
        for (int step = 0; step < stop; ++step) train_step(first, first_net, comm, step, DType::f32, 1e-2);
        first.settle_strategy();
        EXPECT_EQ(doubles(first.strategy_state().back().values), std::vector<double>{static_cast<double>(stop)});
        Sharded second(second_net, testing::context(1), comm, make_adamw(), options);
        second.load_weights(first.weights());
        second.load_optimizer_state(first.optimizer_state(), first.state());
        second.load_strategy_state(first.strategy_state());
        for (int step = stop; step < 8; ++step) train_step(second, second_net, comm, step, DType::f32, 1e-2);
        EXPECT_TRUE(whole_values(second) == whole_values(whole))
            << make_outer_steps(outer)->describe() << ", stage " << number << ", stopped after " << stop;
      });
    }
}

// What the plan says: nothing crosses groups but the outer steps.
TEST(OuterSteps, SendAndKeepWhatThePlanSays) {
  for (const OuterStepOptions& outer : kAll)
    for (const int number : {0, 2, 3}) {
      ShardedOptions options = with_outer(number, outer);
      options.sharding.group = 2;
      // The last fragments have arrived when the delay is over.
      const int windows = 2, steps = static_cast<int>(outer.every * windows + outer.delay);
      const GroupResult result = trained_in_groups({.ranks = 4, .group = 2, .steps = steps, .options = options});
      UnitNet planned, net;
      const std::vector<FlatBuffer> layout = lay_out(planned, shard_ranks(options, 4));
      const RankPlan plan = plan_rank(layout, *make_adamw(), options, 4, 0);
      EXPECT_EQ(plan.traffic.strategy_steps, outer.every);
      EXPECT_EQ(result.across, windows * plan.traffic.strategy);
      run_ranks(4, [&](Communicator& comm) {
        UnitNet own;
        const Context context = testing::context(1);
        Sharded engine(own, context, comm, make_adamw(), options);
        for (int step = 0; step < steps; ++step) train_step(engine, own, comm, step, DType::f32, 1e-2);
        if (comm.rank() == 0) {
          EXPECT_EQ(static_cast<std::int64_t>(context.memory()[Purpose::optimizer].current), plan.memory.optimizer);
        }
      });
    }
}

// Notes what an engine calls.
class Listening : public CommunicationStrategy {
 public:
  explicit Listening(std::vector<std::string>& calls) : calls_(calls) {}
  std::string describe() const override { return "listening"; }
  void begin(const StrategySite& site) override { calls_.push_back(concat("begin ", site.units.size())); }
  void after_backward(std::size_t unit) override { calls_.push_back(concat("unit ", unit)); }
  void before_step(const std::function<double()>&) override { calls_.emplace_back("before"); }
  bool after_step(const std::function<bool()>& taken) override {
    calls_.emplace_back(taken() ? "taken" : "skipped");
    return false;
  }
  StrategyCost cost(std::span<const StrategyNumbers>, const StrategyPlace&) const override { return {}; }

 private:
  std::vector<std::string>& calls_;
};

TEST(CommunicationStrategy, HearsOfEachUnitOnceAStepBeforeTheStep) {
  for (const int number : {0, 1, 2, 3})
    run_ranks(3, [&](Communicator& comm) {
      std::vector<std::string> calls;
      ShardedOptions options = stage(number);
      options.sharding.group = 1;
      options.strategy = [&calls] { return std::make_unique<Listening>(calls); };
      UnitNet net;
      Sharded engine(net, testing::context(1), comm, make_adamw(), options);
      std::size_t trained = 0;
      for (const auto& unit : engine.units()) trained += unit->trainable() ? 1 : 0;
      EXPECT_EQ(calls, std::vector<std::string>{concat("begin ", trained)});
      calls.clear();
      train_step(engine, net, comm, 0, DType::f32, 1e-2);
      ASSERT_EQ(calls.size(), trained + 2);
      EXPECT_EQ(calls[trained], "before");
      EXPECT_EQ(calls[trained + 1], "taken");
      calls.resize(trained);
      std::sort(calls.begin(), calls.end());
      for (std::size_t unit = 0; unit < trained; ++unit) EXPECT_EQ(calls[unit], concat("unit ", unit));
    });
}

TEST(OuterSteps, RefuseWhatMakesNoSense) {
  for (const OuterStepOptions& wrong :
       {OuterStepOptions{.every = 0}, OuterStepOptions{.every = 2, .fragments = 3},
        OuterStepOptions{.every = 2, .fragments = 0}, OuterStepOptions{.every = 2, .delay = 2},
        OuterStepOptions{.delay = -1}, OuterStepOptions{.blend = 0}, OuterStepOptions{.blend = 1.5},
        OuterStepOptions{.rate = 0}, OuterStepOptions{.rate = INFINITY}, OuterStepOptions{.momentum = 1},
        OuterStepOptions{.momentum = -0.5}})
    EXPECT_THROW(make_outer_steps(wrong), Error);
  EXPECT_THROW(run_ranks(2,
                         [&](Communicator& comm) {
                           UnitNet net;
                           Sharded(net, testing::context(1), comm, make_adamw(), with_outer(0, kDiLoCo));
                         }),
               Error)
      << "no groups";
  EXPECT_THROW(run_ranks(2,
                         [&](Communicator& comm) {
                           ShardedOptions one_group = with_outer(0, kDiLoCo);
                           one_group.sharding.group = 2;
                           UnitNet net;
                           Sharded(net, testing::context(1), comm, make_adamw(), one_group);
                         }),
               Error)
      << "one group";
}

}  // namespace
}  // namespace keel
