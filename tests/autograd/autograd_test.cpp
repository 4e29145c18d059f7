// The engine's laws: gradients are those of central differences, graphs of any length, shared leaves,
// checkpoints, and the errors that keep a wrong gradient from passing silently.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string_view>

#include "keel/autograd/backward.h"
#include "keel/autograd/functions.h"
#include "keel/autograd/gradcheck.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::uniform_tensor;

struct GradcheckRow {
  const char* name;
  std::vector<Dims> inputs;
  Variable (*function)(std::span<const Variable>);
};

// Compositions; each operation by itself is in operations_test.cpp.
const GradcheckRow kRows[] = {
    {"one input twice", {{5}}, [](std::span<const Variable> v) { return mul(v[0], v[0]); }},
    {"tanh of a difference", {{6}, {6}}, [](std::span<const Variable> v) { return tanh(sub(v[0], v[1])); }},
    {"add_norm, both outputs",
     {{3, 8}, {3, 8}, {8}, {8}},
     [](std::span<const Variable> v) {
       const ResidualNorm r = add_norm(NormKind::layer, v[0], v[1], v[2], v[3], 1e-5);
       return add(r.sum, square(r.out));
     }},
    {"views",
     {{2, 3, 4}},
     [](std::span<const Variable> v) {
       return view(permute(slice(v[0], 2, 1, 3), {2, 0, 1}), {-1});
     }},
    {"one sum twice, whose gradients are expanded",
     {{2, 4}},
     [](std::span<const Variable> v) {
       const Variable x = exp(v[0]);
       return add(sum(x), sum(x));
     }},
    {"concat and split",
     {{2, 4}, {2, 2}},
     [](std::span<const Variable> v) {
       const Variable both[] = {v[0], v[1]};
       const std::vector<Variable> thirds = split(concat(std::span<const Variable>(both), 1), 3, 1);
       return mul(thirds[0], thirds[2]);
     }},
};

TEST(Gradcheck, CompositionsAgreeWithCentralDifferences) {
  const Context context = testing::context(1);
  for (const GradcheckRow& row : kRows) {
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < row.inputs.size(); ++i)
      inputs.push_back(uniform_tensor(context, row.inputs[i], 10 + i, DType::f64));
    EXPECT_EQ(gradcheck(row.function, inputs), "") << row.name;
  }
}

TEST(Gradcheck, FindsAWrongDerivative) {
  const Tensor x = uniform_tensor(testing::context(), {3}, 1, DType::f64);
  const auto wrong = [](std::span<const Variable> v) {
    return record("wrong", kernels::unary<Square>(v[0].value()), {v[0]}, {},
                  [](const Saved&, std::span<const Tensor> grad, const Need&) -> Gradients { return {grad[0]}; });
  };
  EXPECT_NE(gradcheck(wrong, std::span(&x, 1)), "");
}

TEST(Backward, AChainLongerThanTheStackDifferentiatesAndDrops) {
  constexpr int length = 300'000;  // a frame an operation would need more than 8 MiB
  const Variable x(testing::tensor_of(testing::context(1), {1}, {1}), true);
  {
    Variable dropped = x;
    for (int i = 0; i < length; ++i) dropped = neg(dropped);
  }
  Variable y = x;
  for (int i = 0; i < length; ++i) y = neg(y);
  backward(y);
  EXPECT_EQ(x.grad().item(), 1);
}

TEST(Backward, GradientsAccumulateUntilZeroGrad) {
  const Variable x(testing::tensor_of(testing::context(1), {3}, {1}), true);
  backward(square(x));
  backward(square(x));
  EXPECT_EQ(x.grad().item(), 12);
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
  backward(square(x), 0.5);
  EXPECT_EQ(x.grad().item(), 3);
}

TEST(Backward, ASecondPassThroughOneGraphIsAnError) {
  const Variable x(testing::tensor_of(testing::context(1), {3}, {1}), true);
  const Variable y = square(x);
  backward(y);
  EXPECT_THROW(backward(y), Error);
}

TEST(Backward, ChangingASavedTensorInPlaceIsAnError) {
  const Variable x(testing::tensor_of(testing::context(1), {3}, {1}), true);
  const Variable y = square(x);
  kernels::fill(x.value(), 4);
  EXPECT_THROW(backward(y), Error);
}

TEST(Backward, ReadyHooksFireOnceAfterTheLastContribution) {
  const Variable x(testing::tensor_of(testing::context(1), {3}, {1}), true);
  std::vector<double> seen;
  bool ended = false;
  x.leaf()->when_ready(&ended, [&](BackwardPass& pass) {
    seen.push_back(x.grad().item());
    pass.at_end([&] { ended = true; });
  });
  backward(add(square(x), mul(x, x)));
  EXPECT_EQ(seen, std::vector<double>{12});
  EXPECT_TRUE(ended);
}

TEST(Backward, ForgettingAnOwnersHooksLeavesThoseOfOthers) {
  const Variable x(testing::tensor_of(testing::context(1), {3}, {1}), true);
  int first = 0, second = 0;
  x.leaf()->when_ready(&first, [&](BackwardPass&) { ++first; });
  x.leaf()->when_ready(&second, [&](BackwardPass&) { ++second; });
  x.leaf()->forget_hooks(&first);
  backward(square(x));
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 1);
}

// Every operation of the lists has a function for users, which is the operation.
TEST(Elementwise, EveryOperationHasItsFunction) {
  const Context context = testing::context(1);
  const Variable x(uniform_tensor(context, {5}, 1)), y(uniform_tensor(context, {5}, 2));
  const Variable positive = exp(x);
  const std::map<std::string_view, std::function<Variable(const Variable&)>> unary_functions = {
      {"neg", neg},
      {"abs", abs},
      {"sign", sign},
      {"floor", floor},
      {"exp", exp},
      {"log", log},
      {"sqrt", sqrt},
      {"rsqrt", rsqrt},
      {"square", square},
      {"reciprocal", reciprocal},
      {"sigmoid", sigmoid},
      {"tanh", tanh},
      {"relu", relu},
      {"leaky_relu", [](const Variable& v) { return leaky_relu(v, 0.25); }},
      {"elu", elu},
      {"softplus", softplus},
      {"gelu", gelu},
      {"gelu_tanh", gelu_tanh},
      {"silu", silu},
      {"pow_scalar", [](const Variable& v) { return pow(v, 0.25); }},
      {"add_scalar", [](const Variable& v) { return shift(v, 0.25); }},
      {"mul_scalar", [](const Variable& v) { return scale(v, 0.25); }}};
  for (int op = 0; op < UnaryOps::size; ++op) {
    const auto found = unary_functions.find(name_of_unary(op));
    ASSERT_NE(found, unary_functions.end()) << name_of_unary(op) << " has no function in autograd/elementwise.h";
    EXPECT_EQ(doubles(found->second(positive).value()), doubles(unary(op, positive, 0.25).value())) << found->first;
  }
  const std::map<std::string_view, std::function<Variable(const Variable&, const Variable&)>> binary_functions = {
      {"add", add},
      {"sub", sub},
      {"mul", mul},
      {"div", div},
      {"maximum", maximum},
      {"minimum", minimum},
      {"pow", [](const Variable& a, const Variable& b) { return pow(a, b); }}};
  for (int op = 0; op < BinaryOps::size; ++op) {
    if (is_comparison_op(op)) continue;
    const auto found = binary_functions.find(name_of_binary(op));
    ASSERT_NE(found, binary_functions.end()) << name_of_binary(op) << " has no function in autograd/elementwise.h";
    EXPECT_EQ(doubles(found->second(positive, y).value()), doubles(binary(op, positive, y).value())) << found->first;
  }
}

// e^x keeps its digits in 16 bits; the output plus 1 has lost them.
TEST(Elementwise, TheDerivativeOfEluKeepsItsDigitsInSixteenBits) {
  const Context context = testing::context(1);
  const Variable x(kernels::cast(testing::tensor_of(context, {-4, -6, -9}, {3}), DType::bf16), true);
  backward(sum(elu(x)));
  const std::vector<double> slope = doubles(x.grad());
  for (std::size_t i = 0; i < slope.size(); ++i) {
    const double exact = std::exp(doubles(x.value())[i]);
    EXPECT_NEAR(slope[i], exact, exact / 256);
  }
}

TEST(Backward, NothingIsRecordedWithinNoGrad) {
  const Variable x(testing::tensor_of(testing::context(1), {3}, {1}), true);
  const NoGrad no_grad;
  EXPECT_FALSE(square(x).requires_grad());
}

// One weight in two checkpointed blocks and outside: the gradient and the hook are those without checkpoints.
TEST(Checkpoint, AWeightUsedInsideTwiceAndOutsideGetsOneFullGradient) {
  const Context context = testing::context(1);
  const auto run = [&](bool recompute, int& fired) {
    const Variable weight(uniform_tensor(context, {4, 4}, 1), true);
    const Variable x(uniform_tensor(context, {3, 4}, 2), true);
    weight.leaf()->when_ready(&fired, [&](BackwardPass&) { ++fired; });
    const auto block = [weight](const Variable& in) { return tanh(linear(in, weight, {})); };
    Variable h = recompute ? checkpoint(block, x) : block(x);
    h = recompute ? checkpoint(block, h) : block(h);
    backward(sum(linear(h, weight, {})));
    std::vector<double> grads = doubles(weight.grad());
    for (const double value : doubles(x.grad())) grads.push_back(value);
    return grads;
  };
  int plain_fired = 0, checkpoint_fired = 0;
  EXPECT_LT(testing::relative_error(run(true, checkpoint_fired), run(false, plain_fired)), 1e-6);
  EXPECT_EQ(plain_fired, 1);
  EXPECT_EQ(checkpoint_fired, 1);
}

TEST(Checkpoint, ReplaysTheDropoutMasksOfTheForwardPass) {
  const Context context = testing::context(1);
  const Tensor ids = from_values<std::int64_t>(context, {5, 9}, {2});
  const auto run = [&](bool recompute) {
    RandomStream random{.seed = 3, .step = 7};
    const Variable x(uniform_tensor(context, {2, 3, 8}, 2), true);
    const auto block = [&](const Variable& in) { return square(dropout(in, 0.5, random.next(), ids)); };
    const Variable h = recompute ? checkpoint(block, x, &random) : block(x);
    backward(sum(block(h)));
    return doubles(x.grad());
  };
  EXPECT_EQ(run(true), run(false));
}

}  // namespace
}  // namespace keel
