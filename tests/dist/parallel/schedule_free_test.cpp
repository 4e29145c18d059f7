// Weights that are averages of what is trained at: who computes with which.

#include <gtest/gtest.h>

#include "keel/kernels/elementwise.h"
#include "keel/optim/elementwise.h"
#include "tests/dist/parallel/sharding_support.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace keel::testing;

std::unique_ptr<Optimizer> schedule_free() {
  return make_elementwise("ScheduleFreeAdamW", {.settings = ScheduleFreeSettings{}, .weight_decay = 0.1});
}

void schedule_free_steps(Sharded& engine, const UnitNet& net, Communicator& comm, int first, int last) {
  for (int step = first; step < last; ++step) {
    const DType dtype = engine.options().policy.parameter;
    const Tensor x = rows(engine.context(), step, comm, 0, 1, 100, dtype);
    const Tensor y = rows(engine.context(), step, comm, 0, 1, 900, dtype);
    engine.backward(mse_loss(net(x), Variable(y)), {.weight = x.dim(0)});
    EXPECT_TRUE(engine.step(1e-2).get().taken);
  }
}

// Whole, as the model computes with them; the masters' rounding where those are all on this rank.
TEST(ScheduleFree, TheModelComputesWithAveragesWhereAskedAndThenGoesOnAsIfItHadNot) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int number : {0, 1, 2, 3})
      run_ranks(2, [&](Communicator& comm) {
        const Context context = testing::context(1);
        UnitNet net, other;
        ShardedOptions options = stage(number);
        options.policy = PrecisionPolicy::of(dtype);
        Sharded engine(net, context, comm, schedule_free(), options);
        Sharded straight(other, context, comm, schedule_free(), options);
        schedule_free_steps(engine, net, comm, 0, 3);
        schedule_free_steps(straight, other, comm, 0, 3);
        const std::vector<double> trained = whole_values(engine), weights = numbers_of(engine.weights());
        engine.use_averages(true);
        const std::vector<double> averages = whole_values(engine);
        EXPECT_NE(averages, trained);
        if (number == 0) {
          std::vector<double> rounded;
          for (const TensorPart& part : engine.weights())
            for (const double each : doubles(kernels::cast(part.values, dtype))) rounded.push_back(each);
          EXPECT_EQ(averages, rounded);
        }
        EXPECT_EQ(numbers_of(engine.weights()), weights) << "they are the same, whoever computes with them";
        engine.use_averages(false);
        EXPECT_EQ(whole_values(engine), trained);
        schedule_free_steps(engine, net, comm, 3, 5);
        schedule_free_steps(straight, other, comm, 3, 5);
        EXPECT_EQ(whole_values(engine), whole_values(straight));
        EXPECT_EQ(numbers_of(engine.optimizer_state()), numbers_of(straight.optimizer_state()));
      });
}

TEST(ScheduleFree, NoStepIsTakenByAveragesAndOtherOptimizersHaveNone) {
  const Context context = testing::context(1);
  UnitNet net, plain;
  Sharded engine(net, context, schedule_free()), adam(plain, context, make_adamw());
  const auto gradient = [&](Sharded& of, const UnitNet& model) {
    of.backward(mean(model(uniform_tensor(context, {4, kWidth}, 1))));
  };
  engine.use_averages(true);
  gradient(engine, net);
  EXPECT_NE(error_of([&] { engine.step(1e-2); }).find("use_averages(false)"), std::string::npos);
  engine.use_averages(false);
  EXPECT_TRUE(engine.step(1e-2).get().taken);
  const std::vector<double> before = whole_values(adam);
  adam.use_averages(true);
  EXPECT_EQ(whole_values(adam), before);
  gradient(adam, plain);
  EXPECT_TRUE(adam.step(1e-2).get().taken);
}

// 16 bytes a weight in fp32, as masters are apart; 14 in bf16, as with AdamW.
TEST(ScheduleFree, KeepsMastersInEveryDtype) {
  for (const auto& [dtype, bytes] : {std::pair{DType::f32, 12}, {DType::bf16, 12}, {DType::f64, 24}}) {
    const Context context = testing::context(1);
    UnitNet net;
    ShardedOptions options;
    options.policy = PrecisionPolicy::of(dtype);
    const Sharded engine(net, context, schedule_free(), options);
    std::int64_t elements = 0;
    for (const auto& unit : engine.units()) elements += unit->owned().count();
    EXPECT_EQ(static_cast<std::int64_t>(context.memory()[Purpose::optimizer].current), bytes * elements) << dtype;
  }
}

}  // namespace
}  // namespace keel
