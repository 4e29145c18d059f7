// ZeRO stages: the same bits in every one, whatever the buckets, overlap or delays.

#include <gtest/gtest.h>

#include <mutex>
#include <optional>

#include "keel/dist/comm/decorators.h"
#include "tests/dist/parallel/sharding_support.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace keel::testing;

struct Plan {
  int ranks = 1;
  ShardedOptions options = {};
  DType dtype = DType::f32;
  int steps = 10;
  int micro_batches = 1;  // of each rank
  bool adam = true;
  bool stochastic_rounding = false;
  std::uint64_t delay_seed = 0;
  std::chrono::microseconds longest_delay{0};  // before each collective
};

struct UnitOutcome {
  std::vector<double> losses, norms, weights;
  friend bool same_bits(const UnitOutcome& a, const UnitOutcome& b) {
    return a.losses == b.losses && a.norms == b.norms && a.weights == b.weights;
  }
};

UnitOutcome train_units(const Plan& plan) {
  UnitOutcome outcome;
  std::mutex mutex;
  run_ranks(plan.ranks, [&](Communicator& direct) {
    DelayedCommunicator comm(direct, plan.delay_seed, plan.longest_delay);
    const Context context = testing::context(1);
    UnitNet net;
    ShardedOptions options = plan.options;
    options.policy = PrecisionPolicy::of(plan.dtype);
    options.micro_batches = plan.micro_batches;
    Sharded engine(net, context, comm,
                   plan.adam ? make_adamw({.stochastic_rounding = plan.stochastic_rounding, .seed = 5}) : make_sgd(),
                   options);
    std::vector<double> losses, norms;
    for (int step = 0; step < plan.steps; ++step) {
      double sum = 0;
      for (int micro = 0; micro < plan.micro_batches; ++micro) {
        const Tensor x = rows(context, step, comm, micro, plan.micro_batches, 100, plan.dtype);
        const Tensor y = rows(context, step, comm, micro, plan.micro_batches, 900, plan.dtype);
        const Variable loss = mse_loss(net(x), Variable(y));
        engine.backward(loss, {.weight = x.dim(0), .last = micro + 1 == plan.micro_batches});
        sum += loss.value().item() * static_cast<double>(x.dim(0));
      }
      const StepResult result = engine.step(1e-2).get();
      EXPECT_TRUE(result.taken);
      const Tensor total = tensor_of(context, {sum}, {1}, DType::f64);
      comm.all_reduce(total).wait();
      losses.push_back(total.item() / kBatch);
      norms.push_back(result.grad_norm);
    }
    const std::vector<double> weights = whole_values(engine);
    const std::lock_guard lock(mutex);
    if (comm.rank() == 0) outcome = {losses, norms, weights};
  });
  return outcome;
}

Plan plan_of(int ranks, int stage, DType dtype = DType::f32, int micro_batches = 1) {
  Plan plan{.ranks = ranks, .dtype = dtype, .micro_batches = micro_batches};
  plan.options.sharding.stage = stage;
  plan.options.clip = 1;
  return plan;
}

TEST(Zero, StagesAreBitwiseEqual) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const UnitOutcome reference = train_units(plan_of(ranks, 0, dtype));
      for (const int stage : {1, 2, 3})
        EXPECT_TRUE(same_bits(train_units(plan_of(ranks, stage, dtype)), reference))
            << ranks << " ranks, stage " << stage << ", " << dtype;
    }
  }
}

TEST(Zero, AnyNumberOfRanksFollowsTheCurveOfOne) {
  for (const bool adam : {false, true}) {
    Plan plan = plan_of(1, 0);
    plan.adam = adam;
    const UnitOutcome one = train_units(plan);
    for (const int ranks : {2, 4, 8}) {
      plan.ranks = ranks;
      plan.options.sharding.stage = 2;
      const UnitOutcome several = train_units(plan);
      for (std::size_t i = 0; i < one.losses.size(); ++i)
        EXPECT_NEAR(several.losses[i], one.losses[i], (adam ? 1e-4 : 1e-5) * one.losses[i]) << ranks << " ranks";
    }
  }
}

// Acceptance check 29, with overlap on and off.
TEST(Zero, BucketsOverlapAndPrefetchChangeNoBit) {
  const UnitOutcome reference = train_units(plan_of(4, 0));
  for (const int stage : {0, 2, 3}) {
    for (const std::int64_t cap : {std::int64_t{64} << 10, std::int64_t{1} << 20, std::int64_t{1} << 40}) {
      for (const int prefetch : {0, 1, 2, 4}) {
        if (stage < 3 && prefetch > 0) continue;
        for (const bool overlap : {false, true}) {
          Plan plan = plan_of(4, stage);
          plan.options.sharding.first_bucket = plan.options.sharding.bucket = cap;
          plan.options.sharding.overlap = overlap;
          plan.options.sharding.prefetch = prefetch;
          EXPECT_TRUE(same_bits(train_units(plan), reference))
              << "stage " << stage << ", cap " << cap << ", prefetch " << prefetch << ", overlap " << overlap;
        }
      }
    }
  }
}

TEST(Zero, StochasticRoundingDrawsTheSameNumbersInEveryStage) {
  for (const int ranks : {2, 3, 4}) {
    Plan plan = plan_of(ranks, 0, DType::bf16);
    plan.stochastic_rounding = true;
    const UnitOutcome reference = train_units(plan);
    for (plan.options.sharding.stage = 1; plan.options.sharding.stage <= 3; ++plan.options.sharding.stage)
      EXPECT_TRUE(same_bits(train_units(plan), reference)) << ranks << " ranks, stage " << plan.options.sharding.stage;
  }
}

void expect_equal_in_spite_of_delays(int seeds, std::chrono::milliseconds longest) {
  for (const int number : {0, 1, 2, 3}) {
    Plan plan = plan_of(4, number);
    plan.steps = 3;
    const UnitOutcome reference = train_units(plan);
    plan.longest_delay = longest;
    for (int seed = 1; seed <= seeds; ++seed) {
      plan.delay_seed = static_cast<std::uint64_t>(seed);
      EXPECT_TRUE(same_bits(train_units(plan), reference)) << "stage " << number << ", seed " << seed;
    }
  }
}

TEST(Zero, DelaysOfAnyRankChangeNoBit) { expect_equal_in_spite_of_delays(5, std::chrono::milliseconds(5)); }

TEST(SlowZero, LongDelaysOfAnyRankChangeNoBit) { expect_equal_in_spite_of_delays(20, std::chrono::milliseconds(100)); }

TEST(Sharded, OfNothingToTrainAnswersAndRefusesToTrain) {
  struct Net : Module {
    explicit Net(bool has_layer) {
      if (has_layer) layer.emplace(3, 3);
    }
    std::optional<Linear> layer;
    Variable operator()(const Variable& x) const {
      Forward pass;
      return relu(layer ? (*layer)(x, pass) : x);
    }
    void visit(Visitor& v) override {
      if (layer) v("layer", *layer);
    }
  };
  for (const bool is_frozen : {false, true})
    for (const int number : {0, 3})
      run_ranks(2, [&](Communicator& comm) {
        const Context context = testing::context(1);
        Net net(is_frozen);
        if (is_frozen)
          for (const Parameter* each : {&net.layer->weight, &net.layer->bias}) each->set_trainable(false);
        Sharded engine(net, context, comm, make_sgd(), stage(number));
        EXPECT_FALSE(engine.trains());
        const Variable loss = mean(net(Variable(tensor_of(context, {1, 2, 3, 4, 5, 6}, {2, 3}))));
        if (!is_frozen) { EXPECT_EQ(loss.value().item(), 3.5); }
        EXPECT_EQ(error_of([&] { engine.backward(loss); }), "the model has no parameters to train");
        EXPECT_EQ(engine.weight(), 0);
      });
}

}  // namespace
}  // namespace keel
