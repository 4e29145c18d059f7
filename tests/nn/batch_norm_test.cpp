// Batch norm and its buffers without an engine: gradients, formula, names, refusals.

#include "keel/nn/batch_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "keel/autograd/backward.h"
#include "keel/autograd/checkpoint.h"
#include "keel/autograd/functions.h"
#include "keel/autograd/gradcheck.h"
#include "keel/kernels/elementwise.h"
#include "keel/nn/state.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::error_of;
using testing::relative_error;
using testing::uniform_tensor;

constexpr PrecisionPolicy kDouble{.parameter = DType::f64, .gradient = DType::f64};

TEST(BatchNorm, GradientsOfTrainingAndOfEvaluationEqualDifferences) {
  const Context context = testing::context(1);
  for (const bool training : {true, false})
    for (const Dims& shape : {Dims{5, 3}, Dims{2, 4, 3}}) {
      BatchNorm layer(3);
      const std::vector<FlatBuffer> buffers = materialize(layer, context, {.policy = kDouble});
      std::vector<Tensor> inputs = {uniform_tensor(context, shape, 1, DType::f64),
                                    uniform_tensor(context, {3}, 2, DType::f64),
                                    uniform_tensor(context, {3}, 3, DType::f64)};
      const auto forward = [&](std::span<const Variable> given) {
        layer.weight.state()->variable = given[1];
        layer.bias.state()->variable = given[2];
        Forward pass{.training = training, .random = {}, .sample_ids = {}};
        return layer(given[0], pass);
      };
      EXPECT_EQ(gradcheck(forward, inputs), "") << training << ' ' << shape;
    }
}

TEST(BatchNorm, IsItsFormulaAndObservesMeanAndUnbiasedVariance) {
  const Context context = testing::context(1);
  BatchNorm layer(2, {.epsilon = 0.5, .affine = false});
  const std::vector<FlatBuffer> buffers = materialize(layer, context);
  EXPECT_TRUE(buffers.empty());
  const Tensor x = uniform_tensor(context, {7, 2}, 1);
  Forward pass{.training = true, .random = {}, .sample_ids = {}, .observes = true};
  const std::vector<double> xs = doubles(x), ys = doubles(layer(Variable(x), pass).value());
  std::vector<double> expected(xs.size()), means(2), variances(2);
  for (std::size_t c = 0; c < 2; ++c) {
    for (std::size_t i = 0; i < 7; ++i) means[c] += xs[2 * i + c] / 7;
    double squares = 0;
    for (std::size_t i = 0; i < 7; ++i) squares += std::pow(xs[2 * i + c] - means[c], 2);
    variances[c] = squares / 6;
    for (std::size_t i = 0; i < 7; ++i) expected[2 * i + c] = (xs[2 * i + c] - means[c]) / std::sqrt(squares / 7 + 0.5);
  }
  EXPECT_LT(relative_error(ys, expected), 1e-6);
  for (const auto& [buffer, observed] : {std::pair{&layer.running_mean, means}, {&layer.running_var, variances}}) {
    EXPECT_EQ(buffer->state()->count, 7);
    std::vector<double> sums = doubles(buffer->state()->observed);
    for (double& sum : sums) sum /= 7;
    EXPECT_LT(relative_error(sums, observed), 1e-6);
  }
  // The buffers themselves are as they were.
  EXPECT_EQ(doubles(layer.running_mean.value()), (std::vector<double>{0, 0}));
  EXPECT_EQ(doubles(layer.running_var.value()), (std::vector<double>{1, 1}));
}

TEST(Buffers, ArePartOfStateDictsByName) {
  const Context context = testing::context(1);
  Sequential model(Linear(2, 3), BatchNorm(3));
  const std::vector<FlatBuffer> flat = materialize(model, context);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state_dict(model)) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias",
                                             "layers.1.running_mean", "layers.1.running_var"}));
  EXPECT_EQ(count_buffers(model).numbers, 6);
  EXPECT_EQ(count_buffers(model).buffers, 2);
  EXPECT_EQ(count_parameters(model), 2 * 3 + 3 + 3 + 3);
}

TEST(Buffers, AreLoadedFromAStateDictAndWithoutThemItIsRefused) {
  const Context context = testing::context(1);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Sequential one(Linear(2, 3), BatchNorm(3)), two(Linear(2, 3), BatchNorm(3));
    const PrecisionPolicy policy = PrecisionPolicy::of(dtype);
    const std::vector<FlatBuffer> first = materialize(one, context, {.policy = policy, .seed = 1});
    std::vector<FlatBuffer> second = materialize(two, context, {.policy = policy, .seed = 2});
    NamedTensors state = state_dict(one);
    double number = 1;
    for (const auto& [name, tensor] : state)
      if (name.starts_with("layers.1.running")) kernels::fill(tensor, ++number);
    load_state(two, second, state);
    for (std::size_t i = 0; i < state.size(); ++i)
      EXPECT_EQ(doubles(state_dict(two)[i].second), doubles(state[i].second)) << state[i].first << ' ' << dtype;
    state.pop_back();
    const std::string told = error_of([&] { load_state(two, second, state); });
    EXPECT_NE(told.find("layers.1.running_var"), std::string::npos) << told;
  }
}

TEST(Buffers, ObserveOnceWhereAForwardPassIsRepeatedInBackward) {
  const Context context = testing::context(1);
  BatchNorm layer(3);
  const std::vector<FlatBuffer> flat = materialize(layer, context);
  Forward pass{.training = true, .random = {}, .sample_ids = {}, .observes = true};
  const Variable x(uniform_tensor(context, {4, 3}, 1), true);
  const Variable y = checkpoint([&](const Variable& given) { return layer(given, pass); }, x);
  EXPECT_EQ(layer.running_mean.state()->count, 4);
  const std::vector<double> before = doubles(layer.running_mean.state()->observed);
  backward(sum(y));
  EXPECT_TRUE(x.grad().defined());
  EXPECT_EQ(layer.running_mean.state()->count, 4);
  EXPECT_EQ(doubles(layer.running_mean.state()->observed), before);
}

TEST(Buffers, AreCountedThoseThatMoveApart) {
  struct Model : Module {
    BatchNorm first{3}, second{5};
    Buffer table = Buffer::constant({4, 2});
    void visit(Visitor& v) override {
      v("first", first);
      v("second", second);
      v("table", table);
    }
  } model;
  const BufferCount count = count_buffers(model);
  EXPECT_EQ(count.buffers, 5);
  EXPECT_EQ(count.numbers, 2 * (3 + 5) + 8);
  EXPECT_EQ(count.moving_buffers, 4);
  EXPECT_EQ(count.moving_numbers, 2 * (3 + 5));
}

TEST(Buffers, ObserveNothingWhereThePassDoesNot) {
  const Context context = testing::context(1);
  BatchNorm layer(3);
  const std::vector<FlatBuffer> flat = materialize(layer, context);
  const Variable x(uniform_tensor(context, {4, 3}, 1));
  Forward diagnosis{.training = true, .random = {}, .sample_ids = {}}, evaluation;
  layer(x, diagnosis);
  layer(x, evaluation);
  EXPECT_EQ(layer.running_mean.state()->count, 0);
  EXPECT_FALSE(layer.running_var.state()->observed.defined());
}

TEST(Buffers, WhatCannotBeIsRefused) {
  const Context context = testing::context(1);
  EXPECT_EQ(error_of([] { BatchNorm layer(3, {.momentum = 1.5}); }),
            "the momentum of a moving average must be in (0, 1], got 1.5");
  EXPECT_EQ(error_of([] { BatchNorm layer(3, {.epsilon = 0}); }), "the epsilon of batch norm must be positive, got 0");
  BatchNorm layer(3);
  EXPECT_EQ(error_of([&] { layer.running_mean.value(); }),
            "a buffer of shape (3) has no memory yet; call materialize(model, context) first");
  const std::vector<FlatBuffer> flat = materialize(layer, context);
  Forward pass{.training = true, .random = {}, .sample_ids = {}, .observes = true};
  EXPECT_EQ(error_of([&] {
              layer(Variable(uniform_tensor(context, {1, 3}, 1)), pass);
            }),
            "batch norm cannot train on one value per channel, the input being (1, 3); a micro-batch needs at least 2 "
            "rows");
  EXPECT_EQ(error_of([&] {
              layer(Variable(uniform_tensor(context, {4, 2}, 1)), pass);
            }),
            "batch norm of width 3 needs an input of shape (rows, ..., 3), got (4, 2)");
  EXPECT_EQ(error_of([&] { layer(Variable(uniform_tensor(context, {3}, 1)), pass); }),
            "batch norm of width 3 needs an input of shape (rows, ..., 3), got (3)");
  EXPECT_EQ(error_of([&] { layer.running_mean.observe(pass, uniform_tensor(context, {2}, 1), 1); }),
            "the buffer running_mean has shape (3), but what was observed has (2)");
  for (const std::int64_t count : {0, -1})
    EXPECT_EQ(error_of([&] { layer.running_mean.observe(pass, uniform_tensor(context, {3}, 1), count); }),
              concat("the buffer running_mean: a mean over ", count, " values was observed"));
  EXPECT_EQ(error_of([] { BatchNorm(1); }), "");
  for (const std::int64_t width : {0, -1})
    EXPECT_EQ(error_of([&] { BatchNorm{width}; }), concat("batch norm needs a width of at least 1, got ", width));
  EXPECT_EQ(error_of([&] { Buffer::constant({3}).observe(pass, uniform_tensor(context, {3}, 1), 1); }),
            "only a moving average observes");
  struct Clash : Module {
    Parameter number{{1}, Initializer::zeros()};
    Buffer table = Buffer::constant({1});
    void visit(Visitor& v) override {
      v("number", number);
      v("number", table);
    }
  } clash;
  EXPECT_EQ(error_of([&] { materialize(clash, context); }), "the model has a parameter and a buffer named number");
}

}  // namespace
}  // namespace keel
