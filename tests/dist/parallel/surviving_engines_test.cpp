// Engines of groups of several ranks, of which one group is lost.

#include <gtest/gtest.h>

#include <algorithm>

#include "keel/dist/comm/background_communicator.h"
#include "keel/dist/comm/choosing_communicator.h"
#include "keel/dist/comm/decorators.h"
#include "keel/dist/strategies/fast_components.h"
#include "keel/dist/strategies/outer_steps.h"
#include "keel/dist/strategies/sparse_outer_steps.h"
#include "keel/dist/strategies/surviving_groups.h"
#include "tests/dist/comm/ranks.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr OuterStepOptions kNesterov = {.every = 3, .rate = 0.7, .momentum = 0.9, .nesterov = true, .repeats = true};
constexpr OuterStepOptions kInParts = {.every = 4,
                                       .rate = 0.7,
                                       .momentum = 0.9,
                                       .nesterov = true,
                                       .fragments = 2,
                                       .delay = 2,
                                       .blend = 0.25,
                                       .repeats = true};

StrategyMaker steps_of(const OuterStepOptions& options) {
  return [options] { return make_outer_steps(options); };
}

ShardedOptions in_pairs(int number, const StrategyMaker& strategy, SurvivingGroups& groups) {
  ShardedOptions options = stage(number);
  options.sharding.group = 2;
  options.strategy = strategy;
  options.survivors = &groups;
  return options;
}

// How they train, with the same bits.
struct Manner {
  bool by_thread = false;  // collectives go on by a thread of their own
  bool tunes = false;      // groups choose sizes of buckets and algorithms by the time of their steps
};

// Engines of three groups of two; one rank of the second group goes before a collective of this number. What each rank
// has at the end, behind the collectives that it has asked for.
std::vector<std::vector<double>> trained(const StrategyMaker& strategy, int number, int at, Manner manner = {}) {
  return results_of_those_left(
      6,
      [&](Communicator& direct) {
        std::int64_t before = -1, asked = 0;
        WatchedCommunicator ranks(direct, [&](std::int64_t number_of, const Collective&) {
          asked = number_of + 1;
          if (direct.rank() == 3 && at >= 0 && before >= 0 && number_of - before >= at) die();
        });
        std::unique_ptr<Communicator> own = ranks.split(0, ranks.rank());
        if (manner.by_thread) own = make_background_communicator(std::move(own));
        SurvivingGroups groups(*own, 2);
        const auto engine_ranks = manner.tunes ? make_choosing_communicator(groups.ranks(), "direct") : nullptr;
        UnitNet net;
        ShardedOptions options = in_pairs(number, strategy, groups);
        if (manner.tunes) options.sharding.bucket = ShardingOptions::kAutomatic;
        options.tuning.steps = 1;
        Sharded engine(net, testing::context(1), engine_ranks ? *engine_ranks : *own, make_adamw({}), options);
        groups.attempt([] {});  // all have made theirs
        before = asked;
        EXPECT_EQ(engine.is_tuning(), manner.tunes);
        for (int step = 0; step < 7; ++step) {
          const Tensor x = rows(engine.context(), step, direct, 0, 1, 100, DType::f32);
          engine.backward(mean(square(net(x))), {.weight = x.dim(0)});
          EXPECT_TRUE(engine.step(1e-2).get().taken);
        }
        EXPECT_EQ(engine.groups(), groups.axis().size());
        std::vector<double> all = {static_cast<double>(direct.rank() == 3 ? asked - before : 0)};
        std::ranges::copy(whole_values(engine), std::back_inserter(all));
        return all;
      },
      {.timeout = std::chrono::seconds(20)});
}

TEST(SurvivingEngines, LoseAWholeGroupWithARank) {
  const std::vector<StrategyMaker> strategies = {
      steps_of(kNesterov), steps_of(kInParts),
      [] { return make_sparse_outer_steps({.every = 3, .chunk = 64, .keep = 8}); },
      [] { return make_fast_components({.decay = 0.9, .chunk = 16, .keep = 2}); }};
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    const int number = i % 2 == 0 ? 3 : 0;
    const auto asked = static_cast<int>(trained(strategies[i], number, -1)[3].front());
    ASSERT_GT(asked, 20);
    for (const int at : {0, asked / 3, asked / 2, asked - 2}) {
      const auto left = trained(strategies[i], number, at);
      for (const std::size_t rank : {2, 3}) EXPECT_TRUE(left[rank].empty()) << "its group ends with it";
      for (const std::size_t rank : {0, 4}) {
        EXPECT_FALSE(left[rank].empty()) << "strategy " << i << ", before collective " << at;
        EXPECT_TRUE(left[rank] == left[rank + 1]) << "strategy " << i << ", before collective " << at;
      }
    }
  }
}

// Steps of plain SGD that end with an outer one, so that all that are left have the same.
TEST(SurvivingEngines, HaveTheSameWeightsAfterAnOuterStep) {
  constexpr OuterStepOptions kLast = {.every = 7, .rate = 0.7, .repeats = true};
  for (const int number : {0, 2, 3}) {
    const auto without = trained(steps_of(kLast), number, 0);
    for (const int at : {5, 20}) EXPECT_TRUE(trained(steps_of(kLast), number, at) == without) << "stage " << number;
    EXPECT_FALSE(without[0].empty());
    for (const std::size_t rank : {1, 4, 5}) EXPECT_TRUE(without[rank] == without[0]);
  }
}

// Wherever a group goes before the only outer step has ended: the others have the same. What groups that choose ask of
// each other inside does not count.
TEST(SurvivingEngines, HaveTheSameWeightsByAThreadAndWhileTheyTune) {
  constexpr OuterStepOptions kLast = {.every = 7, .rate = 0.7, .repeats = true};
  for (const int number : {0, 3}) {
    const auto left = trained(steps_of(kLast), number, 2);
    for (const std::size_t rank : {0, 1, 4, 5}) ASSERT_FALSE(left[rank].empty());
    for (const Manner manner : {Manner{.by_thread = true}, Manner{.tunes = true}, Manner{true, true}})
      EXPECT_TRUE(trained(steps_of(kLast), number, 2, manner) == left)
          << "stage " << number << (manner.by_thread ? ", by a thread" : "") << (manner.tunes ? ", tuned" : "");
  }
}

}  // namespace
}  // namespace keel
