// Settings that an engine chooses by the time of its first steps: what is tried, what wins, and that no bit depends on
// it.

#include "keel/dist/parallel/step_tuning.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <thread>

#include "keel/dist/comm/choosing_communicator.h"
#include "keel/dist/comm/decorators.h"
#include "keel/dist/plan/rank_plan.h"
#include "keel/optim/lbfgs.h"
#include "tests/dist/parallel/sharding_support.h"

namespace keel {
namespace {

using namespace keel::testing;

TEST(SettingTuner, TriesEachValueOfOneAxisAfterTheOtherAndKeepsTheShortest) {
  SettingTuner tuner({{.name = "a", .values = {"x", "y", "z"}}, {.name = "b", .values = {"1", "2"}}}, 2);
  const double ms_of_a[] = {7, 3, 5}, ms_of_b[] = {2, 4};
  EXPECT_FALSE(tuner.step_took(0.1)) << "the very first step counts for nothing";
  for (std::size_t value = 0; value < 3; ++value)
    for (const double noise : {-1.0, 2.0, 0.0}) {  // the first step with a value does not count
      EXPECT_EQ(tuner.axes()[0].value, value);
      EXPECT_EQ(tuner.step_took(ms_of_a[value] + noise), value == 2 && noise == 0);
    }
  EXPECT_EQ(std::vector<double>(tuner.measured().begin(), tuner.measured().end()), (std::vector<double>{7, 3, 5}));
  tuner.choose(std::vector<double>{7, 6, 5});  // another rank was slower with the second
  EXPECT_EQ(tuner.axes()[0].value, 2u);
  EXPECT_FALSE(tuner.is_over());
  for (std::size_t value = 0; value < 2; ++value)
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(tuner.axes()[0].value, 2u) << "what is chosen stays";
      EXPECT_EQ(tuner.axes()[1].value, value);
      EXPECT_EQ(tuner.step_took(ms_of_b[value]), value == 1 && step == 2);
    }
  tuner.choose(std::vector<double>{4, 4});
  EXPECT_EQ(tuner.axes()[1].value, 0u) << "of equal times the first";
  EXPECT_TRUE(tuner.is_over());
  EXPECT_EQ(to_text(tuner.axes()), "a z (x 7 ms, y 6 ms, z 5 ms); b 1 (1 4 ms, 2 4 ms)");
}

ShardedOptions automatic(int number) {
  ShardedOptions options = stage(number);
  options.policy = PrecisionPolicy::of(DType::bf16);  // so that the order of additions would be seen
  options.sharding.bucket = ShardingOptions::kAutomatic;
  options.tuning = {.buckets = {1, 10'000, 1 << 20}, .prefetches = {1, 2, 3}, .steps = 1};
  return options;
}

constexpr int kTunedSteps = 14;

struct Tuned {
  std::vector<double> weights;
  std::set<std::int64_t> buckets, prefetches;  // that steps were taken with
  ShardingOptions chosen;
  std::vector<TunedAxis> axes;
  bool over = true;
  bool operator==(const Tuned&) const = delete;
};

Tuned train(Communicator& comm, const ShardedOptions& options) {
  Tuned tuned;
  const Context context = testing::context(1);
  UnitNet net;
  Sharded engine(net, context, comm, make_adamw(), options);
  for (int step = 0; step < kTunedSteps; ++step) {
    tuned.buckets.insert(engine.options().sharding.bucket);
    tuned.prefetches.insert(engine.options().sharding.prefetch);
    const Tensor x = rows(context, step, comm, 0, 1, 100, DType::bf16);
    engine.backward(mean(square(net(x))), {.weight = x.dim(0)});
    EXPECT_TRUE(engine.step(1e-2).get().taken);
  }
  tuned.over = !engine.is_tuning();
  tuned.chosen = engine.options().sharding;
  tuned.axes.assign(engine.tuned().begin(), engine.tuned().end());
  tuned.weights = whole_values(engine);
  return tuned;
}

// Of each rank, over all algorithms that add by rank in one sum.
std::vector<Tuned> train_all(int ranks, const ShardedOptions& options, bool delays) {
  std::vector<Tuned> all(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Communicator& direct) {
    const std::unique_ptr<Communicator> choosing = make_choosing_communicator(direct, "ordered");
    DelayedCommunicator late(*choosing, 7, std::chrono::microseconds(delays ? 300 : 0));
    all[static_cast<std::size_t>(direct.rank())] = train(late, options);
  });
  return all;
}

TEST(StepTuning, LeavesEveryBitAsItIsWithFixedSizes) {
  for (const int ranks : {2, 3, 4})
    for (const int number : {0, 1, 2, 3}) {
      ShardedOptions fixed = automatic(number);
      fixed.sharding.bucket = ShardingOptions{}.bucket;
      const std::vector<double> expected = train_all(ranks, fixed, false).front().weights;
      const std::vector<Tuned> tuned = train_all(ranks, automatic(number), true);
      const bool sizes = number < 2, ahead = number == 3;
      for (const Tuned& each : tuned) {
        EXPECT_TRUE(each.weights == expected) << ranks << " ranks, stage " << number;
        EXPECT_TRUE(each.over);
        EXPECT_TRUE(each.chosen == tuned.front().chosen) << "ranks go over together";
        ASSERT_EQ(each.axes.size(), sizes || ahead ? 2u : 1u);
        EXPECT_EQ(each.axes.front().values, (std::vector<std::string>{"ordered", "direct", "flat"}));
        EXPECT_EQ(each.axes.front().ms, tuned.front().axes.front().ms) << "the slowest rank's time is that of all";
        EXPECT_EQ(each.buckets.size(), sizes ? 4u : 1u) << "three sizes, and the usual one while algorithms are tried";
        EXPECT_EQ(each.prefetches.size(), ahead ? 3u : 1u);
      }
    }
}

// A rank that dawdles with one of the values rules it out for all.
TEST(StepTuning, TheSlowestRankDecides) {
  constexpr std::int64_t kDawdled[] = {1, 1 << 20};
  std::vector<Tuned> all(3);
  run_ranks(3, [&](Communicator& comm) {
    ShardedOptions options = automatic(0);
    std::int64_t in_use = 0;
    WatchedCommunicator late(comm, [&](std::int64_t, const Collective&) {
      if (comm.rank() == 1 && std::ranges::count(kDawdled, in_use) > 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    });
    const Context context = testing::context(1);
    UnitNet net;
    Sharded engine(net, context, late, make_sgd(), options);
    while (engine.is_tuning()) {
      in_use = engine.options().sharding.bucket;
      engine.backward(mean(net(rows(context, 0, comm, 0, 1, 100, DType::bf16))));
      engine.step(1e-3);
    }
    all[static_cast<std::size_t>(comm.rank())].chosen = engine.options().sharding;
  });
  for (const Tuned& each : all) EXPECT_EQ(each.chosen.bucket, 10'000);
}

TEST(StepTuning, DoesNothingWhereThereIsNothingToChoose) {
  run_ranks(2, [&](Communicator& comm) {
    ShardedOptions options = automatic(0);
    options.tuning.buckets = {std::int64_t{1} << 30, std::int64_t{1} << 40};  // which make the same buckets
    const Tuned tuned = train(comm, options);
    EXPECT_TRUE(tuned.axes.empty() && tuned.over);
    EXPECT_EQ(tuned.buckets, (std::set{ShardingOptions{}.bucket}));
  });
  UnitNet net;
  const Sharded alone(net, testing::context(1), make_sgd(), automatic(0));
  EXPECT_FALSE(alone.is_tuning());
  EXPECT_EQ(alone.options().sharding.bucket, ShardingOptions{}.bucket);
}

TEST(StepTuning, OfAnOptimizerThatEvaluatesTheLossItselfIsRefused) {
  UnitNet net;
  try {
    const Sharded engine(net, testing::context(1), make_lbfgs({}), automatic(0));
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("set sharding.bucket to a size"), std::string::npos) << error.what();
  }
}

// As many ahead as there are units have nothing further to gather, and one count alone is no choice.
TEST(StepTuning, TriesToPrefetchFewerUnitsThanThereAre) {
  ShardedOptions options = automatic(3);
  options.sharding.prefetch = 7;
  for (const auto& [units, largest] : {std::pair{1U, 7}, {2U, 7}, {3U, 2}, {4U, 3}, {5U, 3}})
    EXPECT_EQ(largest_tried(options, units).prefetch, largest) << units << " units";
}

TEST(StepTuning, HasTheMemoryOfTheLargestSizeInPlans) {
  const auto planned = [](std::int64_t bucket, int prefetch) {
    UnitNet net;
    ShardedOptions options = automatic(3);
    options.sharding.bucket = bucket;
    options.sharding.prefetch = prefetch;
    return plan_rank(lay_out(net, 2), *make_adamw(), options, 2, 0).memory.buckets;
  };
  EXPECT_EQ(planned(ShardingOptions::kAutomatic, 1), planned(1 << 20, 3));
  EXPECT_GT(planned(ShardingOptions::kAutomatic, 1), planned(1 << 20, 1));
}

}  // namespace
}  // namespace keel
