#include "keel/dist/parallel/sharded.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "keel/autograd/backward.h"
#include "keel/autograd/functions.h"
#include "keel/nn/layers.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::relative_error;
using testing::uniform_tensor;

struct TwoLinears : Module {
  Linear first{5, 7}, second{7, 3};
  Variable operator()(const Tensor& x) const { return second(tanh(first(Variable(x)))); }
  void visit(Visitor& v) override {
    v("first", first);
    v("second", second);
  }
};

std::vector<double> all_weights(const Sharded& engine) {
  std::vector<double> all;
  for (const auto& [name, tensor] : whole_tensors(engine.weights()))
    for (const double value : doubles(tensor)) all.push_back(value);
  return all;
}

Variable loss_of(const TwoLinears& net, const Tensor& x, const Tensor& y) { return mse_loss(net(x), Variable(y)); }

TEST(Engine, WeighsMicroBatchesByTheirTokens) {
  const Context context = testing::context(1);
  const Tensor x = uniform_tensor(context, {6, 5}, 1), y = uniform_tensor(context, {6, 3}, 2);
  TwoLinears whole_net, parts_net;
  Sharded whole(whole_net, context, make_sgd({.momentum = 0.9}));
  Sharded parts(parts_net, context, make_sgd({.momentum = 0.9}), {.micro_batches = 3});
  for (int step = 0; step < 3; ++step) {
    whole.backward(loss_of(whole_net, x, y), {.weight = 6});
    const StepResult a = whole.step(0.1).get();
    for (const auto& [begin, end] : {std::pair(0, 1), std::pair(1, 3), std::pair(3, 6)})
      parts.backward(loss_of(parts_net, x.slice(0, begin, end), y.slice(0, begin, end)),
                     {.weight = end - begin, .last = end == 6});
    const StepResult b = parts.step(0.1).get();
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-6 * a.grad_norm);
  }
  EXPECT_LT(relative_error(all_weights(whole), all_weights(parts)), 1e-6);
}

TEST(Engine, ClipsTheWholeGradientToTheLengthAsked) {
  const Context context = testing::context(1);
  const Tensor x = uniform_tensor(context, {6, 5}, 1), y = uniform_tensor(context, {6, 3}, 2);
  TwoLinears net;
  Sharded engine(net, context, make_sgd(), {.clip = 0.01});
  const std::vector<double> before = all_weights(engine);
  engine.backward(loss_of(net, x, y));
  const StepResult result = engine.step(1).get();
  ASSERT_GT(result.grad_norm, 0.01);
  const std::vector<double> after = all_weights(engine);
  double moved = 0;
  for (std::size_t i = 0; i < after.size(); ++i) moved += (after[i] - before[i]) * (after[i] - before[i]);
  EXPECT_NEAR(std::sqrt(moved), 0.01, 1e-5);
}

TEST(Engine, SkipsAStepWhoseGradientIsNotFiniteAndNamesTheParameter) {
  const Context context = testing::context(1);
  const Tensor x = uniform_tensor(context, {6, 5}, 1), y = uniform_tensor(context, {6, 3}, 2);
  TwoLinears net;
  Sharded engine(net, context, make_adamw());
  const std::vector<double> before = all_weights(engine);
  const Tensor bad = uniform_tensor(context, {6, 5}, 1);
  bad.data<float>()[3] = std::numeric_limits<float>::infinity();
  engine.backward(loss_of(net, bad, y));
  const StepResult result = engine.step(0.1).get();
  EXPECT_FALSE(result.taken);
  EXPECT_EQ(result.first_bad, "first.weight");
  EXPECT_EQ(engine.steps_taken(), 0);
  EXPECT_EQ(all_weights(engine), before);
  engine.backward(loss_of(net, x, y));
  EXPECT_TRUE(engine.step(0.1).get().taken);
  EXPECT_EQ(engine.steps_taken(), 1);
}

TEST(Engine, ContinuesFromItsSavedStateToTheSameBits) {
  const Context context = testing::context(2);
  const Tensor x = uniform_tensor(context, {6, 5}, 1), y = uniform_tensor(context, {6, 3}, 2);
  for (const auto& [dtype, random] : {std::pair{DType::f32, false}, {DType::bf16, false}, {DType::bf16, true}}) {
    const ShardedOptions options{.policy = PrecisionPolicy::of(dtype)};
    const AdamWOptions adamw{.stochastic_rounding = random, .seed = 5};
    TwoLinears net, copy;
    Sharded engine(net, context, make_adamw(adamw), options), other(copy, context, make_adamw(adamw), options);
    const Tensor input = kernels::cast(x, dtype), target = kernels::cast(y, dtype);
    const auto train = [&](Sharded& which, const TwoLinears& model) {
      which.backward(loss_of(model, input, target));
      which.step(0.01);
    };
    for (int step = 0; step < 2; ++step) train(engine, net);
    other.load_weights(engine.weights());
    other.load_optimizer_state(engine.optimizer_state(), engine.state());
    train(engine, net);
    train(other, copy);
    EXPECT_EQ(all_weights(engine), all_weights(other)) << dtype << random;
    EXPECT_EQ(other.steps_taken(), 3);
  }
}

TEST(Engine, RoundsEveryWeightWithADrawOfItsOwn) {
  const Context context = testing::context(1);
  struct Equal : Module {
    Linear first{4, 4}, second{4, 4};
    void visit(Visitor& v) override {
      v("first", first);
      v("second", second);
    }
  } net;
  Sharded engine(net, context, make_adamw({.weight_decay = 0, .stochastic_rounding = true}),
                 {.policy = PrecisionPolicy::of(DType::bf16)});
  TensorParts weights = engine.weights();
  for (TensorPart& part : weights) part.values = kernels::full(context, part.values.shape(), 1, part.values.dtype());
  engine.load_weights(weights);
  const Tensor x = kernels::full(context, {1, 4}, 1, DType::bf16);
  engine.backward(sum(add(net.first(Variable(x)), net.second(Variable(x)))));
  engine.step(2e-3);  // half of what lies between 1 and the number below it
  const std::vector<double> after = all_weights(engine);
  const std::vector<double> first(after.begin(), after.begin() + 20), second(after.begin() + 20, after.end());
  EXPECT_NE(first, second);
  for (const double value : after) EXPECT_TRUE(value == 1 || value == 1 - 0x1p-8) << value;
}

// The tokens of a loss, times the loss scale, may be a number that the loss's 16 bits do not have.
TEST(Engine, ALossInSixteenBitsHasTheGradientOfOneInThirtyTwo) {
  const auto norm_of = [](DType dtype, std::int64_t tokens, double scale) {
    const Context context = testing::context(1);
    TwoLinears net;
    Sharded engine(net, context, make_adamw(), {.micro_batches = 2, .loss_scale = scale});
    const Tensor x = uniform_tensor(context, {6, 5}, 1), y = uniform_tensor(context, {6, 3}, 2);
    for (const bool last : {false, true})
      engine.backward(cast(loss_of(net, x, y), dtype), {.weight = last ? tokens : 3, .last = last});
    const StepResult result = engine.step(1e-3).get();
    EXPECT_TRUE(result.taken);
    return result.grad_norm;
  };
  for (const std::int64_t tokens : {1, 771, 65'409, 1'000'001})
    for (const double scale : {1.0, 65'536.0})
      for (const DType dtype : {DType::bf16, DType::f16})
        EXPECT_EQ(norm_of(dtype, tokens, scale), norm_of(DType::f32, tokens, scale))
            << dtype << ' ' << tokens << " tokens, scale " << scale;
}

TEST(Engine, LeavesHooksOfOthersWhereTheyAreWhenItEnds) {
  const Context context = testing::context(1);
  const Tensor x = uniform_tensor(context, {6, 5}, 1), y = uniform_tensor(context, {6, 3}, 2);
  TwoLinears net;
  int fired = 0;
  {
    Sharded engine(net, context, make_sgd());
    net.first.weight.variable().leaf()->when_ready(&fired, [&](BackwardPass&) { ++fired; });
  }
  backward(loss_of(net, x, y));
  EXPECT_EQ(fired, 1);
}

TEST(Engine, RefusesTheStateOfAnotherOptimizer) {
  const Context context = testing::context(1);
  TwoLinears net, other;
  Sharded adamw(net, context, make_adamw()), sgd(other, context, make_sgd({.momentum = 0.9}));
  EXPECT_THROW(adamw.load_optimizer_state(sgd.optimizer_state(), {}), Error);
  EXPECT_THROW(adamw.step(0.1), Error);  // no backward before it
}

TEST(Engine, CountsParameterGradientAndOptimizerBytesByTheFormula) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Context context = testing::context(1);
    TwoLinears net;
    const Sharded engine(net, context, make_adamw(), {.policy = PrecisionPolicy::of(dtype)});
    const std::size_t padded = 128;  // 66 parameters, in one buffer
    ASSERT_EQ(count_parameters(net), 5 * 7 + 7 + 7 * 3 + 3);
    const MemoryReport memory = context.memory();
    EXPECT_EQ(memory[Purpose::parameter].current, padded * size_of(dtype));
    EXPECT_EQ(memory[Purpose::gradient].current, padded * size_of(dtype));
    EXPECT_EQ(memory[Purpose::optimizer].current, padded * (dtype == DType::f32 ? 8 : 12));
  }
  const Context context = testing::context(1);
  TwoLinears net;
  const Sharded engine(net, context, make_adamw({.stochastic_rounding = true}),
                       {.policy = PrecisionPolicy::of(DType::bf16)});
  EXPECT_EQ(context.memory()[Purpose::optimizer].current, 128u * 8);  // no master
}

}  // namespace
}  // namespace keel
