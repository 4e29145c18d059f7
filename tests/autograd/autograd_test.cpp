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

const GradcheckRow kRows[] = {
    {"add broadcast", {{3, 4}, {4}}, [](std::span<const Variable> v) { return add(v[0], v[1]); }},
    {"mul broadcast", {{3, 1}, {1, 4}}, [](std::span<const Variable> v) { return mul(v[0], v[1]); }},
    {"one input twice", {{5}}, [](std::span<const Variable> v) { return mul(v[0], v[0]); }},
    {"tanh of a difference", {{6}, {6}}, [](std::span<const Variable> v) { return tanh(sub(v[0], v[1])); }},
    {"gelu", {{7}}, [](std::span<const Variable> v) { return gelu(v[0]); }},
    {"gelu_tanh", {{7}}, [](std::span<const Variable> v) { return gelu_tanh(v[0]); }},
    {"silu", {{7}}, [](std::span<const Variable> v) { return silu(v[0]); }},
    {"sum", {{3, 4, 2}}, [](std::span<const Variable> v) { return sum(v[0], {1}); }},
    {"mean",
     {{3, 4, 2}},
     [](std::span<const Variable> v) {
       return mean(v[0], {0, 2}, true);
     }},
    {"max", {{3, 5}}, [](std::span<const Variable> v) { return max(v[0], {1}); }},
    {"matmul", {{3, 4}, {4, 5}}, [](std::span<const Variable> v) { return matmul(v[0], v[1]); }},
    {"batched matmul", {{2, 3, 4}, {2, 4, 5}}, [](std::span<const Variable> v) { return matmul(v[0], v[1]); }},
    {"batched matmul with one right side",
     {{2, 3, 4}, {4, 5}},
     [](std::span<const Variable> v) { return matmul(v[0], v[1]); }},
    {"linear", {{2, 3, 4}, {5, 4}, {5}}, [](std::span<const Variable> v) { return linear(v[0], v[1], v[2]); }},
    {"linear without bias", {{3, 4}, {5, 4}}, [](std::span<const Variable> v) { return linear(v[0], v[1], {}); }},
    {"linear_gelu", {{3, 4}, {5, 4}, {5}}, [](std::span<const Variable> v) { return linear_gelu(v[0], v[1], v[2]); }},
    {"softmax", {{3, 5}}, [](std::span<const Variable> v) { return softmax(v[0]); }},
    {"log_softmax", {{3, 5}}, [](std::span<const Variable> v) { return log_softmax(v[0]); }},
    {"layer_norm", {{3, 8}, {8}, {8}}, [](std::span<const Variable> v) { return layer_norm(v[0], v[1], v[2]); }},
    {"rms_norm", {{3, 8}, {8}}, [](std::span<const Variable> v) { return rms_norm(v[0], v[1]); }},
    {"add_norm, both outputs",
     {{3, 8}, {3, 8}, {8}, {8}},
     [](std::span<const Variable> v) {
       const ResidualNorm r = add_norm(NormKind::layer, v[0], v[1], v[2], v[3], 1e-5);
       return add(r.sum, square(r.out));
     }},
    {"causal attention with shared key heads",
     {{1, 4, 5, 4}, {1, 2, 5, 4}, {1, 2, 5, 4}},
     [](std::span<const Variable> v) { return attention(v[0], v[1], v[2], {.causal = true}); }},
    {"packed attention",
     {{2, 5, 24}},
     [](std::span<const Variable> v) { return attention_packed(v[0], 2, 2, {.causal = true}); }},
    {"views",
     {{2, 3, 4}},
     [](std::span<const Variable> v) {
       return view(permute(slice(v[0], 2, 1, 3), {2, 0, 1}), {-1});
     }},
    {"concat and split",
     {{2, 4}, {2, 2}},
     [](std::span<const Variable> v) {
       const Variable both[] = {v[0], v[1]};
       const std::vector<Variable> thirds = split(concat(std::span<const Variable>(both), 1), 3, 1);
       return mul(thirds[0], thirds[2]);
     }},
};

TEST(Gradcheck, EveryFunctionAgreesWithCentralDifferences) {
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

TEST(Gradcheck, SelectionsAndCrossEntropyAgreeWithCentralDifferences) {
  const Context context = testing::context(1);
  const Tensor index = from_values<std::int64_t>(context, {2, 0, 2}, {3});
  const Tensor picks = from_values<std::int64_t>(context, {1, 1, 0, 2, 2, 0}, {2, 3});
  const Tensor targets = from_values<std::int64_t>(context, {1, -100, 3}, {3});
  const Tensor x = uniform_tensor(context, {3, 4}, 2, DType::f64);
  const Tensor y = uniform_tensor(context, {2, 4}, 3, DType::f64);
  const auto check = [](const Tensor& input, std::function<Variable(const Variable&)> f) {
    return gradcheck([&](std::span<const Variable> v) { return f(v[0]); }, std::span(&input, 1));
  };
  EXPECT_EQ(check(x, [&](const Variable& v) { return index_select(v, 0, index); }), "");
  EXPECT_EQ(check(y, [&](const Variable& v) { return gather(v, 1, picks); }), "");
  EXPECT_EQ(check(x, [&](const Variable& v) { return embedding(v, index); }), "");
  EXPECT_EQ(
      check(x, [&](const Variable& v) { return scale(cross_entropy(v, targets, {.label_smoothing = 0.1}).loss, 3); }),
      "");
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
