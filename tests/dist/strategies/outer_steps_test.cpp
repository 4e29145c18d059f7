// Outer steps of groups: what they keep, send and refuse.

#include "keel/dist/strategies/outer_steps.h"

#include <gtest/gtest.h>

#include <cmath>

#include "keel/dist/comm/run_ranks.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

// A unit that is as large as the others together is a fragment of its own.
TEST(OuterSteps, OfFragmentsMoveAboutAsMuchEachTime) {
  run_ranks(2, [&](Communicator& comm) {
    const Context context = testing::context(1);
    const auto strategy = make_outer_steps({.every = 2, .fragments = 2});
    std::vector<StrategyUnit> units;
    for (const std::int64_t count : {10, 60, 20, 30}) units.push_back({"unit", zeros(context, {count}), Tensor()});
    strategy->begin({.units = units, .context = context, .outer = comm});
    for (int step = 1; step <= 4; ++step) {
      const std::int64_t before = comm.traffic().sent();
      strategy->after_step([] { return true; });
      EXPECT_EQ(comm.traffic().sent() - before, 60 * 4) << "step " << step;
    }
  });
}

TEST(OuterSteps, CostATensorForEachThingThatOutlivesAStepAndASumOfAllNumbers) {
  const StrategyNumbers units[] = {{.count = 9}, {.count = 6}};
  const auto cost = [&](const OuterStepOptions& options) {
    return make_outer_steps(options)->cost(units, {.groups = 3, .group = 1});
  };
  const auto kept = [&](const OuterStepOptions& options) { return cost(options).state / (4 * (9 + 6)); };
  EXPECT_EQ(kept({}), 1);
  EXPECT_EQ(kept({.repeats = true}), 1);
  EXPECT_EQ(kept({.momentum = 0.5}), 2);
  EXPECT_EQ(kept({.every = 2, .delay = 1}), 2);
  EXPECT_EQ(kept({.every = 2, .delay = 1, .repeats = true}), 3);
  EXPECT_EQ(kept({.every = 2, .momentum = 0.5, .delay = 1, .repeats = true}), 4);
  // Two thirds of the numbers go to the groups that add them up, and the third that is added here to the two others.
  for (const std::int64_t every : {1, 5}) {
    EXPECT_EQ(cost({.every = every}).sent, 4 * (6 + 2 * 3 + 4 + 2 * 2));
    EXPECT_EQ(cost({.every = every}).every, every);
  }
}

TEST(OuterSteps, KeepWhatTheirCostSays) {
  for (const double momentum : {0.0, 0.9})
    for (const std::int64_t delay : {0, 1})
      for (const bool repeats : {false, true})
        run_ranks(2, [&](Communicator& comm) {
          const auto strategy =
              make_outer_steps({.every = 2, .momentum = momentum, .delay = delay, .repeats = repeats});
          const Context context = testing::context(1);
          const Tensor weights = uniform_tensor(context, {50}, 1);
          strategy->begin({.units = {{"unit", weights, Tensor()}}, .context = context, .outer = comm});
          for (int step = 0; step < 4; ++step) strategy->after_step([] { return true; });
          const StrategyCost cost =
              strategy->cost(std::vector<StrategyNumbers>{{.count = 50}}, {.groups = 2, .group = comm.rank()});
          EXPECT_EQ(cost.state, static_cast<std::int64_t>(context.memory()[Purpose::optimizer].current));
          EXPECT_EQ(cost.every, 2);
          EXPECT_EQ(cost.sent, 4 * 50) << "half of it, and the sum of the other half";
        });
}

TEST(OuterSteps, HaveAsMuchAtOnceAsTheirCostSays) {
  for (const OuterStepOptions& options :
       std::vector<OuterStepOptions>{{.every = 2},
                                     {.every = 2, .repeats = true},
                                     {.every = 2, .momentum = 0.5, .nesterov = true},
                                     {.every = 2, .momentum = 0.5, .nesterov = true, .delay = 1},
                                     {.every = 2, .momentum = 0.5, .delay = 1},
                                     {.every = 3, .fragments = 2, .blend = 0.5, .repeats = true},
                                     {.every = 3, .fragments = 2, .delay = 1, .blend = 0.5, .repeats = true}})
    run_ranks(2, [&](Communicator& comm) {
      const auto strategy = make_outer_steps(options);
      const Context context = testing::context(1);
      std::vector<StrategyUnit> units;
      std::vector<StrategyNumbers> numbers;
      for (const std::int64_t count : {30, 50, 10, 40}) {
        units.push_back({"unit", zeros(context, {count}), Tensor()});
        numbers.push_back({.count = count});
      }
      strategy->begin({.units = units, .context = context, .outer = comm});
      for (int step = 0; step < 6; ++step) strategy->after_step([] { return true; });
      EXPECT_EQ(strategy->cost(numbers, {.groups = 2, .group = comm.rank()}).at_once,
                static_cast<std::int64_t>(context.memory()[Purpose::bucket].peak))
          << strategy->describe() << (options.repeats ? ", repeats" : "");
    });
}

TEST(OuterSteps, RefuseOptionsThatMakeNoSense) {
  const auto refusal = [](const OuterStepOptions& options) { return error_of([&] { make_outer_steps(options); }); };
  EXPECT_EQ(refusal({.every = 1, .fragments = 1, .delay = 0, .blend = 1}), "");
  EXPECT_EQ(refusal({.every = 4, .rate = 1e-3, .fragments = 4, .delay = 3, .blend = 1e-3}), "");
  EXPECT_EQ(refusal({.every = 0}), "outer steps come every 1 step or more, got 0");
  for (const std::int64_t fragments : {0, 5})
    EXPECT_EQ(refusal({.every = 4, .fragments = fragments}),
              concat("there are 1 to 4 fragments where outer steps come every 4 steps, got ", fragments));
  for (const std::int64_t delay : {-1, 4})
    EXPECT_EQ(refusal({.every = 4, .delay = delay}), concat("an outer step is delayed by 0 to 3 steps, got ", delay));
  for (const double blend : {0.0, 1.5})
    EXPECT_EQ(refusal({.blend = blend}), concat("the blend is above 0 and at most 1, got ", blend));
  for (const double rate : {0.0, -1.0})
    EXPECT_EQ(refusal({.rate = rate}), concat("the outer rate is above 0, got ", rate));
  EXPECT_EQ(refusal({.rate = INFINITY}), "the outer rate is above 0, got inf");
  for (const double momentum : {-0.5, 1.0})
    EXPECT_EQ(refusal({.momentum = momentum}), concat("the outer momentum is from 0 to below 1, got ", momentum));
}

}  // namespace
}  // namespace keel
