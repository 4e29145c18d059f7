// The blocked loss of a last layer, against linear() and cross_entropy() with all logits.

#include "keel/autograd/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "keel/autograd/backward.h"
#include "keel/autograd/flops.h"
#include "keel/autograd/functions.h"
#include "keel/kernels/blocked_loss.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::error_of;
using testing::kFloats;
using testing::relative_error;
using testing::uniform_tensor;

using Options = LinearCrossEntropyOptions;

struct LastLayer {
  Variable hidden, weight, bias;
  Tensor targets;
};

LastLayer last_layer(const Context& context, std::int64_t rows, std::int64_t width, std::int64_t vocabulary,
                     DType dtype, int ignored_of_five = 1) {
  LastLayer layer;
  layer.hidden = Variable(uniform_tensor(context, {rows, width}, 1, dtype), true);
  layer.weight = Variable(uniform_tensor(context, {vocabulary, width}, 2, dtype), true);
  layer.bias = Variable(uniform_tensor(context, {vocabulary}, 3, dtype), true);
  std::vector<std::int64_t> targets;
  for (std::int64_t row = 0; row < rows; ++row)
    targets.push_back(row % 5 < ignored_of_five ? -100 : row * 7919 % vocabulary);
  layer.targets = from_values(context, targets, {rows});
  return layer;
}

struct LayerResult {
  double loss = 0, count = 0;
  std::vector<std::vector<double>> gradients;
};

LayerResult run(const LastLayer& layer, double seed, const Options* options, double smoothing = 0) {
  for (const Variable& leaf : {layer.hidden, layer.weight, layer.bias}) leaf.zero_grad();
  const CrossEntropyLoss loss =
      options != nullptr ? linear_cross_entropy(layer.hidden, layer.weight, layer.bias, layer.targets, *options)
                         : cross_entropy(linear(layer.hidden, layer.weight, layer.bias), layer.targets,
                                         {.label_smoothing = smoothing});
  backward(loss.loss, seed);
  LayerResult result{loss.loss.value().item(), loss.count.item(), {}};
  for (const Variable& leaf : {layer.hidden, layer.weight, layer.bias})
    result.gradients.push_back(doubles(leaf.grad()));
  return result;
}

double layer_tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-13;
    case DType::f32: return 3e-6;
    case DType::f16: return 2e-3;
    default: return 1.2e-2;
  }
}

void expect_alike(const LayerResult& result, const LayerResult& expected, double tolerance) {
  EXPECT_NEAR(result.loss, expected.loss, tolerance * expected.loss);
  EXPECT_EQ(result.count, expected.count);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_LE(relative_error(result.gradients[i], expected.gradients[i]), tolerance) << "gradient " << i;
}

TEST(LinearCrossEntropy, EqualsLinearAndCrossEntropyForEveryDtypeAndBlock) {
  const Context context = testing::context(2);
  for (const DType dtype : kFloats)
    for (const double smoothing : {0.0, 0.1}) {
      const LastLayer layer = last_layer(context, 37, 24, 333, dtype);
      const LayerResult expected = run(layer, 0.75, nullptr, smoothing);
      for (const auto& [rows, classes] : {std::pair{0, 0}, {37, 64}, {8, 100}, {5, 333}, {1, 50}, {64, 1000}}) {
        SCOPED_TRACE(concat(dtype, ", smoothing ", smoothing, ", blocks of ", rows, " x ", classes));
        const Options options{.label_smoothing = smoothing, .block_rows = rows, .block_classes = classes};
        expect_alike(run(layer, 0.75, &options), expected, layer_tolerance(dtype));
      }
    }
}

// Weights in 16 bits: what blocks of rows contribute is summed in fp32.
TEST(LinearCrossEntropy, RoundsGradientsIn16BitsOnce) {
  const Context context = testing::context(1);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const LastLayer layer = last_layer(context, 96, 16, 40, dtype);
    const Options whole{}, parts{.block_rows = 4, .block_classes = 12};
    const LayerResult one = run(layer, 64, &whole), many = run(layer, 64, &parts);
    // Two roundings of nearly the same sums: rarely another number, and then the next one.
    for (const std::size_t i : {1, 2}) EXPECT_LE(relative_error(many.gradients[i], one.gradients[i]), 4e-4) << dtype;
  }
}

TEST(LinearCrossEntropy, GivesTheBitsOfOneThreadWithTwo) {
  std::vector<LayerResult> results;
  for (const int threads : {1, 2}) {
    const Context context = testing::context(threads);
    const LastLayer layer = last_layer(context, 130, 40, 700, DType::f32);
    const Options options{.label_smoothing = 0.1, .block_rows = 50, .block_classes = 192};
    results.push_back(run(layer, 1, &options));
  }
  EXPECT_EQ(results[0].loss, results[1].loss);
  EXPECT_EQ(results[0].gradients, results[1].gradients);
}

TEST(LinearCrossEntropy, LooksOnlyAtRowsThatCount) {
  const Context context = testing::context(1);
  const LastLayer layer = last_layer(context, 60, 12, 90, DType::f32, 4);
  const Options options{};
  const LayerResult expected = run(layer, 1, nullptr);
  expect_alike(run(layer, 1, &options), expected, layer_tolerance(DType::f32));

  // The same by the caller's list; a row in it may be ignored all the same.
  std::vector<std::int64_t> rows = {0};
  for (std::int64_t row = 4; row < 60; row += 5) rows.push_back(row);
  const Options chosen{.rows = from_values(context, rows, {static_cast<std::int64_t>(rows.size())})};
  expect_alike(run(layer, 1, &chosen), expected, layer_tolerance(DType::f32));

  // What is not looked at may be no number.
  kernels::fill(layer.hidden.value().slice(0, 0, 1), NAN);
  const LayerResult result = run(layer, 1, &options);
  EXPECT_NEAR(result.loss, expected.loss, 1e-6 * expected.loss);
  EXPECT_LE(relative_error(result.gradients[1], expected.gradients[1]), 3e-6);
}

TEST(LinearCrossEntropy, WithEveryRowIgnoredLossAndGradientsAreZero) {
  const Context context = testing::context(1);
  const LastLayer layer = last_layer(context, 10, 4, 7, DType::f32, 5);
  const Options automatic{}, listed{.rows = kernels::arange(context, 0, 10)};
  for (const Options* options : {&automatic, &listed}) {
    const LayerResult result = run(layer, 3, options);
    EXPECT_EQ(result.loss, 0);
    EXPECT_EQ(result.count, 0);
    for (const auto& gradient : result.gradients) EXPECT_EQ(gradient, std::vector<double>(gradient.size(), 0));
  }
}

TEST(LinearCrossEntropy, AddsToBuffersAndToOtherUsesOfATiedWeight) {
  const Context context = testing::context(1);
  const Tensor ids = from_values(context, std::vector<std::int64_t>{3, 0, 11, 3, 5, 2}, {6});
  const Tensor targets = from_values(context, std::vector<std::int64_t>{0, 11, 3, -100, 2, 8}, {6});
  for (const auto buffer : {std::optional<DType>(), {DType::f32}, {DType::bf16}}) {
    std::vector<std::vector<double>> gradients;
    for (const bool blocked : {false, true}) {
      const Variable table(uniform_tensor(context, {12, 8}, 5, DType::bf16), true);
      if (buffer) {
        table.leaf()->grad = empty(context, {12, 8}, *buffer);
        table.leaf()->assigned = true;
      }
      for (int micro = 0; micro < 2; ++micro) {
        const Variable hidden = tanh(embedding(table, ids));
        backward(blocked ? linear_cross_entropy(hidden, table, {}, targets, {.block_rows = 2, .block_classes = 5}).loss
                         : cross_entropy(linear(hidden, table, {}), targets).loss,
                 0.5);
      }
      gradients.push_back(doubles(table.grad()));
    }
    EXPECT_LE(relative_error(gradients[1], gradients[0]), layer_tolerance(DType::bf16));
  }
}

TEST(LinearCrossEntropy, WorksUnderCheckpointAndWithoutAGraph) {
  const Context context = testing::context(1);
  const LastLayer layer = last_layer(context, 20, 8, 50, DType::f64);
  const Options options{.block_rows = 6, .block_classes = 16};
  const LayerResult expected = run(layer, 1, &options);
  for (const Variable& leaf : {layer.hidden, layer.weight, layer.bias}) leaf.zero_grad();
  const std::function<Variable(const Variable&)> head = [&](const Variable& hidden) {
    return linear_cross_entropy(hidden, layer.weight, layer.bias, layer.targets, options).loss;
  };
  backward(checkpoint(head, layer.hidden));
  EXPECT_EQ(doubles(layer.weight.grad()), expected.gradients[1]);
  EXPECT_EQ(doubles(layer.hidden.grad()), expected.gradients[0]);

  const NoGrad no_grad;
  const Variable loss = head(layer.hidden);
  EXPECT_FALSE(loss.requires_grad());
  EXPECT_EQ(loss.value().item(), expected.loss);
}

TEST(LinearCrossEntropy, GivesTheAnswerOfCrossEntropyForLogitsThatAreNoNumbers) {
  const Context context = testing::context(1);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {infinity, -infinity, std::nan("")})
    for (const std::int64_t place : {0, 5, 9}) {  // the first block, the target, the last block
      SCOPED_TRACE(concat(bad, " at ", place));
      // The bias alone makes the logits.
      const Tensor bias = uniform_tensor(context, {10}, 4);
      kernels::fill(bias.slice(0, place, place + 1), bad);
      const Variable hidden(zeros(context, {2, 3}), true), weight(zeros(context, {10, 3})), leaf(bias, true);
      const Tensor targets = from_values(context, std::vector<std::int64_t>{5, 1}, {2});
      const CrossEntropyLoss whole = cross_entropy(linear(hidden, weight, leaf), targets);
      backward(whole.loss);
      const std::vector<double> expected = doubles(leaf.grad());
      leaf.zero_grad();
      const CrossEntropyLoss blocked = linear_cross_entropy(hidden, weight, leaf, targets, {.block_classes = 3});
      backward(blocked.loss);
      const std::vector<double> result = doubles(leaf.grad());
      const double a = whole.loss.value().item(), b = blocked.loss.value().item();
      if (std::isfinite(a)) EXPECT_NEAR(b, a, 1e-6);
      else EXPECT_EQ(std::isnan(a), std::isnan(b)) << a << ' ' << b;
      for (std::size_t i = 0; i < result.size(); ++i) {
        if (std::isnan(expected[i])) EXPECT_TRUE(std::isnan(result[i])) << i;
        else EXPECT_NEAR(result[i], expected[i], 1e-6) << i;
      }
    }
}

TEST(LinearCrossEntropy, KeepsNoLogitsAndNeedsLessThanATwentiethOfThemAtATime) {
  const std::int64_t vocabulary = 30000, width = 16;
  for (const auto& [dtype, kernels] : {std::pair{DType::f32, KernelChoice::automatic},
                                       {DType::bf16, KernelChoice::automatic},
                                       {DType::f32, KernelChoice::plain}})
    for (const std::int64_t rows : {512, 64}) {
      SCOPED_TRACE(concat(dtype, ", ", rows, " rows"));
      const Context context = testing::context(2, kernels);
      const LastLayer layer = last_layer(context, rows, width, vocabulary, dtype, 0);
      const auto logits = static_cast<double>(rows * vocabulary) * static_cast<double>(size_of(dtype));
      const LogitsBlock block = linear_cross_entropy_block(rows, vocabulary, DeviceType::cpu);
      const auto most = static_cast<double>(block.rows * block.classes) * static_cast<double>(size_of(dtype)) +
                        static_cast<double>(rows * width) * 4;
      // Products pack their operands: up to half a MiB for each thread.
      const double packed = 2 * 0.5 * (1 << 20);
      EXPECT_LT(most, 0.05 * logits);

      const std::size_t before = context.memory().total.current;
      context.allocator().reset_peaks();
      const Variable loss = linear_cross_entropy(layer.hidden, layer.weight, layer.bias, layer.targets).loss;
      const std::size_t kept = context.memory().total.current - before;
      EXPECT_LE(kept, static_cast<std::size_t>(rows) * (4 * sizeof(float) + 8) + 64);
      backward(loss);
      EXPECT_LE(static_cast<double>(context.memory()[Purpose::workspace].peak), most + packed);
    }
}

TEST(LinearCrossEntropy, KeptLogitsGiveTheSameBits) {
  const Context context = testing::context(2);
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(dtype);
    const LastLayer layer = last_layer(context, 37, 24, 333, dtype);
    const Options anew{.block_classes = 64},
        kept{.block_classes = 64, .kept_bytes = 37 * 333 * static_cast<std::int64_t>(size_of(dtype))};
    const LayerResult expected = run(layer, 0.75, &anew), result = run(layer, 0.75, &kept);
    EXPECT_EQ(result.loss, expected.loss);
    EXPECT_EQ(result.gradients, expected.gradients);
  }
}

TEST(LinearCrossEntropy, KeepsLogitsThatFitAndWhereAGradientIsWanted) {
  const Context context = testing::context(1);
  const LastLayer layer = last_layer(context, 64, 16, 3000, DType::f32, 0);
  constexpr std::int64_t kBytes = 64 * 3000 * 4;
  const auto kept_by = [&](const Options& options) {
    const std::size_t before = context.memory().total.current;
    const Variable loss = linear_cross_entropy(layer.hidden, layer.weight, layer.bias, layer.targets, options).loss;
    return static_cast<std::int64_t>(context.memory().total.current - before);
  };
  EXPECT_GE(kept_by({.kept_bytes = kBytes}), kBytes);
  EXPECT_LT(kept_by({.kept_bytes = kBytes - 1}), kBytes / 20);
  EXPECT_LT(kept_by({.block_rows = 32, .kept_bytes = kBytes}), kBytes / 20);
  const NoGrad no_grad;
  EXPECT_LT(kept_by({.kept_bytes = kBytes}), kBytes / 20);
}

// In bytes, by hand, at the sizes that matter: 5 % of the logits, with the gradient of hidden in fp32.
TEST(LinearCrossEntropy, ChoosesBlocksFarBelowAllLogits) {
  for (const std::int64_t rows : {128, 512, 2048, 8192})
    for (const std::int64_t vocabulary : {50257, 151936, 256000})
      for (const DeviceType device : {DeviceType::cpu, DeviceType::cuda}) {
        const LogitsBlock block = linear_cross_entropy_block(rows, vocabulary, device);
        EXPECT_EQ(block.rows, rows);
        EXPECT_GE(block.classes, 256);
        EXPECT_LE(static_cast<double>(block.rows * block.classes), 0.045 * static_cast<double>(rows * vocabulary));
      }
  EXPECT_EQ(linear_cross_entropy_block(7, 65, DeviceType::cpu).classes, 65);
  EXPECT_EQ(linear_cross_entropy_block(0, 65, DeviceType::cpu).rows, 1);
  const LogitsBlock many = linear_cross_entropy_block(1 << 20, 151936, DeviceType::cpu);
  EXPECT_EQ(many.rows * many.classes, 4 << 20);
}

TEST(LinearCrossEntropy, CountsTheProductsThatAModelNeeds) {
  const Context context = testing::context(1);
  const LastLayer layer = last_layer(context, 6, 5, 7, DType::f32, 0);
  const FlopCount count;
  const Variable loss = linear_cross_entropy(layer.hidden, layer.weight, layer.bias, layer.targets).loss;
  EXPECT_EQ(count.flops(), 2 * 6 * 5 * 7);
  backward(loss);
  EXPECT_EQ(count.flops(), 3 * 2 * 6 * 5 * 7);
}

TEST(LinearCrossEntropy, RefusesWhatDoesNotFitAndNamesTheRowOfAnIllegalTarget) {
  const Context context = testing::context(1);
  LastLayer layer = last_layer(context, 5, 3, 4, DType::f32);
  const auto call = [&](const Options& options = {}) {
    return error_of([&] { linear_cross_entropy(layer.hidden, layer.weight, layer.bias, layer.targets, options); });
  };
  layer.targets = from_values(context, std::vector<std::int64_t>{-100, 0, -100, 4, 1}, {5});
  const std::string illegal = "cross_entropy: target 4 of row 3 is neither a class in [0, 4) nor the ignore index -100";
  EXPECT_EQ(call(), illegal);
  EXPECT_EQ(call({.rows = from_values(context, std::vector<std::int64_t>{4, 3}, {2})}), illegal);
  EXPECT_NE(call({.rows = from_values(context, std::vector<std::int64_t>{5}, {1})}), "");
  layer.targets = from_values(context, std::vector<std::int64_t>{1, 0, 2, 3}, {4});
  EXPECT_NE(call().find("linear_cross_entropy: targets must be"), std::string::npos);
  layer.targets = zeros(context, {5}, DType::i64);
  EXPECT_NE(call({.label_smoothing = 1.5}).find("label_smoothing must be in [0, 1]"), std::string::npos);
  EXPECT_NE(call({.block_rows = -1}).find("must not be negative"), std::string::npos);
  EXPECT_NE(call({.rows = zeros(context, {2}, DType::i32)}).find("rows must be i64"), std::string::npos);
  layer.bias = Variable(zeros(context, {3}), true);
  EXPECT_NE(call().find("bias must be"), std::string::npos);
  layer.weight = Variable(zeros(context, {4, 2}), true);
  EXPECT_NE(call().find("does not fit the weight"), std::string::npos);
  layer.weight = Variable(zeros(context, {4, 3}), true);
  layer.bias = {};
  EXPECT_EQ(call(), "");
  layer.targets = zeros(context, {}, DType::i64);
  layer.hidden = Variable(zeros(context, {3}), true);
  EXPECT_EQ(call(), "") << "one row";
  layer.hidden = Variable(zeros(context, {}), true);
  EXPECT_NE(call().find("does not fit the weight"), std::string::npos);
}

}  // namespace
}  // namespace keel
