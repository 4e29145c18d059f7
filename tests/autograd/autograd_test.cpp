// The engine's laws: graphs of any length, shared leaves, and the errors that keep a wrong gradient from
// passing silently.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string_view>
#include <tuple>

#include "keel/autograd/backward.h"
#include "keel/autograd/functions.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::uniform_tensor;

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

TEST(Backward, OutputsMayBeLeavesAndOfAnyDepthInAnyOrder) {
  const Context context = testing::context(1);
  const Tensor one = testing::tensor_of(context, {1}, {1});
  for (int first = 0; first < 3; ++first) {
    const Variable x(testing::tensor_of(context, {3}, {1}), true);
    std::vector<double> seen;
    x.leaf()->when_ready(&seen, [&](BackwardPass&) { seen.push_back(x.grad().item()); });
    std::vector<Variable> outputs = {x, scale(x, 10), neg(neg(scale(x, 100)))};
    std::rotate(outputs.begin(), outputs.begin() + first, outputs.end());
    backward(outputs, std::vector{one, one, one});
    EXPECT_EQ(seen, std::vector<double>{111}) << first;
  }
}

// Of two gradients of one output the sum is written to memory that nobody else sees, and to new memory only where
// others see both.
TEST(Backward, AddsGradientsWhereNobodyElseLooks) {
  const Context context = testing::context(1);
  std::vector<const std::byte*> made;
  const auto ones = [&] {
    const Tensor tensor = kernels::full(context, {4}, 1);
    made.push_back(tensor.raw());
    return tensor;
  };
  // Gives each input a gradient of ones; both the same where there are two.
  const auto give = [&](const std::vector<Variable>& inputs) {
    const std::vector<Tensor> output = {zeros(context, {4})};
    return record("give", output, inputs, {},
                  [&, count = inputs.size()](const Saved&, std::span<const Tensor>, const Need&) {
                    return Gradients(count, ones());
                  })[0];
  };
  for (const auto& [first_is_shared, second_is_shared] :
       {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
    made.clear();
    const Variable leaf(zeros(context, {4}), true);
    const std::byte* arrived = nullptr;
    const auto pass = [&](bool is_watched) {
      return record("pass", zeros(context, {4}), {leaf}, {},
                    [&arrived, is_watched](const Saved&, std::span<const Tensor> grad, const Need&) -> Gradients {
                      if (is_watched) {
                        arrived = grad[0].raw();
                        EXPECT_EQ(doubles(grad[0]), std::vector<double>(4, 2));
                      } else {
                        EXPECT_EQ(doubles(grad[0]), std::vector<double>(4, 1));
                      }
                      return {grad[0]};
                    });
    };
    const Variable h = pass(true), one = pass(false), other = pass(false);
    const std::vector<Variable> outputs = {give(first_is_shared ? std::vector{h, one} : std::vector{h}),
                                           give(second_is_shared ? std::vector{h, other} : std::vector{h})};
    backward(outputs, std::vector{zeros(context, {4}), zeros(context, {4})});
    ASSERT_EQ(made.size(), 2U);
    if (!first_is_shared) EXPECT_EQ(arrived, made[0]);
    else if (!second_is_shared) EXPECT_EQ(arrived, made[1]);
    else EXPECT_TRUE(arrived != made[0] && arrived != made[1]);
  }
}

TEST(Backward, KeepsAGradientThatNobodyElseSeesWithoutACopy) {
  const Context context = testing::context(1);
  for (const bool is_shared : {false, true}) {
    const Variable x(zeros(context, {4}), true), other(zeros(context, {4}), true);
    const std::byte* made = nullptr;
    const std::vector<Variable> inputs = is_shared ? std::vector{x, other} : std::vector{x};
    const std::vector<Tensor> output = {zeros(context, {4})};
    const Variable y = record("give", output, inputs, {}, [&](const Saved&, std::span<const Tensor>, const Need&) {
      const Tensor tensor = kernels::full(context, {4}, 1);
      made = tensor.raw();
      return Gradients(inputs.size(), tensor);
    })[0];
    backward(std::vector{y}, std::vector{zeros(context, {4})});
    EXPECT_EQ(x.grad().raw() == made, !is_shared);
    if (is_shared) { EXPECT_NE(x.grad().raw(), other.grad().raw()); }
  }
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

// 771 is 772 in bf16, and 65,409 is 65,408 in fp16. Each way of making a loss from f32 numbers hands them the seed as
// it is.
TEST(Backward, ASeedIsNotRoundedToTheSixteenBitsOfALoss) {
  const Context context = testing::context(1);
  using Make = std::function<Variable(const Variable&)>;
  const std::pair<double, Make> ways[] = {
      {1, [](const Variable& x) { return x; }},
      {0.25, [](const Variable& x) { return scale(x, 0.25); }},
      {-2, [](const Variable& x) { return sub(neg(x), x); }},
      {6, [](const Variable& x) { return mul(add(x, x), Variable(kernels::full(x.context(), {1}, 3, x.dtype()))); }},
      {4, [](const Variable& x) { return square(x); }},
      {1,
       [](const Variable& x) {
         return sum(view(x, {1, 1}));
       }},
      {3, [](const Variable& x) { return add(mean(x), cast(scale(cast(x, DType::f32), 2), x.dtype())); }},
  };
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const double seed : {1.0, 771.0, 65'409.0, 1e6})
      for (std::size_t way = 0; way < std::size(ways); ++way) {
        const Variable x(testing::tensor_of(context, {2}, {1}), true);
        backward(ways[way].second(cast(x, dtype)), seed);
        EXPECT_EQ(doubles(x.grad()), std::vector<double>{seed * ways[way].first})
            << dtype << ' ' << seed << " way " << way;
      }
}

// A third of the seed, rounded once: from 776 and from 2,048, to which the seeds would be rounded, it is 258 and 682.5.
TEST(Backward, ASeedIsDividedBeforeItIsRounded) {
  const Context context = testing::context(1);
  for (const auto& [dtype, seed, third] : {std::tuple{DType::bf16, 778, 260}, {DType::f16, 2049, 683}}) {
    const Variable x(uniform_tensor(context, {3}, 1, dtype), true);
    backward(mean(x), seed);
    EXPECT_EQ(doubles(x.grad()), std::vector<double>(3, third)) << dtype;
  }
}

TEST(Backward, RefusesASeedThatAnOperationWouldRound) {
  const Context context = testing::context(1);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Variable a(uniform_tensor(context, {1, 5}, 1, dtype), true), b(uniform_tensor(context, {5, 1}, 2, dtype));
    EXPECT_NO_THROW(backward(matmul(a, b), 768));
    EXPECT_THROW(backward(matmul(a, b), 65'409), Error) << dtype;
    // Elsewhere than at the end of a loss it is rounded as any gradient of that operation is.
    EXPECT_NO_THROW(backward(cast(matmul(a, b), DType::f32), 65'409));
  }
}

// A leaf with an owner, in three places: by itself, beside another one, and inside a checkpoint.
TEST(Backward, LeavesOfOthersAreConstantsOfAPass) {
  const Context context = testing::context(1);
  const int engine = 0, other = 0;
  for (const void* owner : {static_cast<const void*>(&engine), static_cast<const void*>(&other)}) {
    const Variable mine(testing::tensor_of(context, {2}, {1}), true),
        theirs(testing::tensor_of(context, {3}, {1}), true);
    mine.leaf()->owner = &engine;
    theirs.leaf()->owner = &other;
    int ready = 0, passed = 0;
    for (const Variable& leaf : {mine, theirs}) {
      leaf.leaf()->when_ready(&ready, [&](BackwardPass&) { ++ready; });
      leaf.leaf()->when_passed(&passed, [&](BackwardPass&) { ++passed; });
    }
    const std::function<Variable(const Variable&)> product = [&](const Variable& x) { return mul(x, theirs); };
    const Variable square_of_theirs = square(theirs);
    const Variable loss = add(add(square(mine), square_of_theirs), checkpoint(product, mul(mine, theirs)));
    backward(std::span(&loss, 1), std::vector{kernels::full(context, {1}, 1)}, owner);
    EXPECT_EQ(ready, 1);
    EXPECT_EQ(passed, 1);
    // The derivatives of m^2 + t^2 + m t^2.
    if (owner == &engine) {
      EXPECT_EQ(doubles(mine.grad()), std::vector<double>{2 * 2 + 3 * 3});
      EXPECT_FALSE(theirs.grad().defined());
    } else {
      EXPECT_EQ(doubles(theirs.grad()), std::vector<double>{2 * 3 + 2 * 2 * 3});
      EXPECT_FALSE(mine.grad().defined());
    }
    // What was a constant is still there for its owner; what was not is consumed.
    const auto again = [&] {
      backward(std::span(&square_of_theirs, 1), std::vector{kernels::full(context, {1}, 1)}, &other);
    };
    if (owner == &engine) EXPECT_NO_THROW(again());
    else EXPECT_THROW(again(), Error);
  }
}

TEST(Backward, AConsumedGraphIsAnErrorBesideConstantsToo) {
  const Context context = testing::context(1);
  const int engine = 0;
  const Variable x(testing::tensor_of(context, {3}, {1}), true), theirs(testing::tensor_of(context, {3}, {1}), true);
  theirs.leaf()->owner = &engine;
  const Variable consumed = square(x);
  backward(consumed);
  EXPECT_THROW(backward(add(consumed, add(theirs, square(x)))), Error);
}

// An Error in the middle of one pass leaves no mark for the next, of another owner.
TEST(Backward, AConstantOfAPassThatFailedIsNoneOfTheNext) {
  const Context context = testing::context(1);
  const int engine = 0;
  const Variable x(testing::tensor_of(context, {3}, {1}), true), theirs(testing::tensor_of(context, {3}, {1}), true);
  theirs.leaf()->owner = &engine;
  const Variable product = mul(x, theirs);
  const Variable failing =
      record("failing", product.value(), {product}, {},
             [](const Saved&, std::span<const Tensor>, const Need&) -> Gradients { throw Error("no gradient"); });
  EXPECT_THROW(backward(failing), Error);
  backward(std::span(&product, 1), std::vector{kernels::full(context, {1}, 1)}, &engine);
  EXPECT_EQ(doubles(theirs.grad()), std::vector<double>{3});
}

}  // namespace
}  // namespace keel
