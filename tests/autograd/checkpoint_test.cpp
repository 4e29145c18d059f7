// Checkpoints, which compute their inside again: gradients, hooks and dropout are those of the graph without them.

#include <gtest/gtest.h>

#include <set>

#include "keel/autograd/backward.h"
#include "keel/autograd/functions.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::uniform_tensor;

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

// Two weights in a checkpoint inside another one, each used several times, and two outputs.
TEST(Checkpoint, EveryWeightInsideIsReadyOnceItsGradientIsWhole) {
  const Context context = testing::context(1);
  const auto run = [&](int depth) {
    const Variable x(uniform_tensor(context, {3, 4}, 1), true);
    const Variable weights[] = {Variable(uniform_tensor(context, {4, 4}, 2), true),
                                Variable(uniform_tensor(context, {4, 4}, 3), true)};
    std::vector<std::vector<double>> ready;
    for (const Variable& weight : weights)
      weight.leaf()->when_ready(&ready, [&ready, &weight](BackwardPass&) { ready.push_back(doubles(weight.grad())); });
    CheckpointedFunction function = [&weights](std::span<const Variable> in) {
      const Variable h = tanh(linear(in[0], weights[0], {}));
      return std::vector<Variable>{tanh(linear(h, weights[1], {})), linear(linear(h, weights[0], {}), weights[1], {})};
    };
    if (depth == 2) function = [inner = function](std::span<const Variable> in) { return checkpoint(inner, in); };
    const std::vector<Variable> outputs =
        depth == 0 ? function(std::span(&x, 1)) : checkpoint(function, std::span(&x, 1));
    const Variable all = add(mul(outputs[0], outputs[1]), linear(x, weights[0], {}));
    backward(add(sum(all), sum(linear(x, weights[1], {}))));
    std::vector<std::vector<double>> grads = {doubles(weights[0].grad()), doubles(weights[1].grad())};
    EXPECT_EQ(std::set(ready.begin(), ready.end()), std::set(grads.begin(), grads.end())) << depth;
    EXPECT_EQ(ready.size(), 2U) << depth;
    grads.push_back(doubles(x.grad()));
    return grads;
  };
  const auto plain = run(0);
  for (const int depth : {1, 2}) {
    const auto again = run(depth);
    for (std::size_t i = 0; i < plain.size(); ++i)
      EXPECT_LT(testing::relative_error(again[i], plain[i]), 1e-6) << depth;
  }
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
