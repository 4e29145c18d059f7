// Updates of weights whose states are codes of 8 bits: their formula, and laws.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "keel/kernels/dynamic_map.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/update.h"
#include "tests/kernels/row_support.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr AdamSettings kAdamW8bit{.beta1 = 0.9, .beta2 = 0.99, .decoupled = true};

// Weights with states in 8 bits, through several steps.
struct BlockedWeights {
  UpdateArgs args{};

  BlockedWeights(const Context& context, std::int64_t count, DType dtype = DType::f32, bool masters = true) {
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    args.parameter = uniform_tensor(context, {count}, 1, dtype);
    if (dtype != wide && masters) args.master = tensor_of(context, doubles(args.parameter), {count});
    for (const std::size_t kind : {0, 1}) {
      args.state[kind] = zeros(context, {count}, DType::u8);
      args.scales[kind] = zeros(context, {state_blocks(count)}, wide);
    }
    args.settings = kAdamW8bit;
    args.range.weight_decay = 0.1;
    args.stochastic_rounding = !masters;
  }
  // Gradients of very different sizes, some of them 0.
  Tensor gradient(std::int64_t number) const {
    const std::int64_t count = args.parameter.numel();
    std::vector<double> numbers = uniform(count, 100 + static_cast<std::uint64_t>(number));
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] *= std::pow(10.0, -static_cast<double>(i % 9)) * (i % 7 != 3);
    return tensor_of(args.parameter.context(), numbers, {count},
                     args.parameter.dtype() == DType::f64 ? DType::f64 : DType::f32);
  }
  // One step, as updates of the ranges between `cuts`.
  void step(std::int64_t number, std::vector<std::int64_t> cuts = {}, bool taken = true) {
    if (cuts.empty()) cuts = {0, args.parameter.numel()};
    args.gradient = gradient(number);
    args.step = kernels::make_step_state(
        args.gradient.context(),
        {.steps = number, .taken = taken ? 1 : 0, .lr = 0.01 / static_cast<double>(number), .gradient_scale = 0.5});
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      UpdateArgs part = args;
      for (Tensor* tensor : {&part.parameter, &part.master, &part.gradient, &part.state[0], &part.state[1]})
        if (tensor->defined()) *tensor = tensor->slice(0, cuts[i], cuts[i + 1]);
      for (const std::size_t kind : {0, 1})
        part.scales[kind] = part.scales[kind].slice(0, cuts[i] / kStateBlock, state_blocks(cuts[i + 1]));
      part.first = cuts[i];
      kernels::update(part);
    }
  }
  std::vector<Tensor> all() const {
    std::vector<Tensor> tensors = {args.parameter, args.state[0], args.state[1], args.scales[0], args.scales[1]};
    if (args.master.defined()) tensors.push_back(args.master);
    return tensors;
  }
  std::vector<std::vector<double>> numbers() const {
    std::vector<std::vector<double>> all_numbers;
    for (const Tensor& tensor : all()) all_numbers.push_back(doubles(tensor));
    return all_numbers;
  }
};

// What is kept of a block, by looking at every number of the map.
void keep_block(std::vector<double>& state, std::size_t begin, std::size_t end, const DynamicMap& map) {
  double scale = 0;
  for (std::size_t i = begin; i < end; ++i) scale = std::max(scale, std::abs(state[i]));
  for (std::size_t i = begin; i < end && scale > 0; ++i) {
    double nearest = 2;
    for (const float value : map.values)
      if (std::abs(static_cast<double>(value) - state[i] / scale) < std::abs(nearest - state[i] / scale))
        nearest = static_cast<double>(value);
    state[i] = nearest * scale;
  }
}

TEST(UpdateBlocks, FollowADoubleReference) {
  const Context context = testing::context(2);
  constexpr std::int64_t kCount = 5 * kStateBlock + 77;
  BlockedWeights weights(context, kCount, DType::f64);
  std::vector<double> p = doubles(weights.args.parameter), m(p.size()), v(p.size());
  for (std::int64_t step = 1; step <= 20; ++step) {
    weights.step(step);
    const std::vector<double> g = doubles(weights.args.gradient);
    const double lr = 0.01 / static_cast<double>(step);
    for (std::size_t i = 0; i < p.size(); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * g[i] / 2;
      v[i] = 0.99 * v[i] + 0.01 * g[i] / 2 * g[i] / 2;
      p[i] *= 1 - lr * 0.1;
      p[i] -= lr / (1 - std::pow(0.9, step)) * m[i] / (std::sqrt(v[i] / (1 - std::pow(0.99, step))) + 1e-8);
    }
    for (std::size_t begin = 0; begin < p.size(); begin += kStateBlock) {
      const std::size_t end = std::min(p.size(), begin + kStateBlock);
      keep_block(m, begin, end, kMapWithSigns);
      keep_block(v, begin, end, kMapWithoutSigns);
    }
  }
  EXPECT_LT(relative_error(doubles(weights.args.parameter), p), 1e-13);
  const std::vector<double> codes = doubles(weights.args.state[0]), scales = doubles(weights.args.scales[0]);
  for (std::size_t i = 0; i < m.size(); ++i)
    EXPECT_NEAR(static_cast<double>(kMapWithSigns.values[static_cast<std::size_t>(codes[i])]) * scales[i / kStateBlock],
                m[i], 1e-12 * scales[i / kStateBlock]);
}

TEST(UpdateBlocks, DependNeitherOnCutsBetweenBlocksNorOnThreads) {
  constexpr std::int64_t kCount = 90 * kStateBlock + 3;
  for (const DType dtype : kFloats)
    for (const bool masters : {true, false}) {
      BlockedWeights whole(testing::context(1), kCount, dtype, masters),
          cut(testing::context(2), kCount, dtype, masters);
      for (std::int64_t step = 1; step <= 4; ++step) {
        whole.step(step);
        cut.step(step, {0, kStateBlock, 3 * kStateBlock, 70 * kStateBlock, kCount});
      }
      EXPECT_EQ(whole.numbers(), cut.numbers()) << dtype << ", masters " << masters;
    }
}

TEST(UpdateBlocks, MastersOfNarrowWeightsFollowFp32) {
  const Context context = testing::context(1);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    BlockedWeights narrow(context, 1000, dtype), wide(context, 1000);
    kernels::copy_into(wide.args.parameter, narrow.args.master);
    for (std::int64_t step = 1; step <= 10; ++step) {
      narrow.step(step);
      wide.step(step);
    }
    EXPECT_EQ(doubles(narrow.args.master), doubles(wide.args.parameter));
    EXPECT_EQ(doubles(narrow.args.parameter), doubles(kernels::cast(wide.args.parameter, dtype)));
    EXPECT_EQ(doubles(narrow.args.state[1]), doubles(wide.args.state[1]));
  }
}

TEST(UpdateBlocks, LeaveAllAsItIsInASkippedStep) {
  BlockedWeights weights(testing::context(1), 1000);
  weights.step(1);
  const auto before = weights.numbers();
  weights.step(2, {}, false);
  EXPECT_EQ(weights.numbers(), before);
}

// With gradients of 0 the means fade by exact factors, so that codes stay and scales shrink; where the largest number
// of a block is positive, since the map has no -1.
TEST(UpdateBlocks, KeepTheirCodesWhileOnlyTheScaleChanges) {
  BlockedWeights weights(testing::context(1), 600);
  weights.args.gradient = weights.gradient(1);
  for (std::int64_t begin = 0; begin < 600; begin += kStateBlock) weights.args.gradient.data<float>()[begin] = 2;
  weights.args.step = kernels::make_step_state(weights.args.gradient.context(), {.steps = 1, .taken = 1});
  kernels::update(weights.args);
  const std::vector<double> m = doubles(weights.args.state[0]), v = doubles(weights.args.state[1]);
  const std::vector<double> scales = doubles(weights.args.scales[0]);
  for (std::int64_t step = 2; step <= 30; ++step) {
    kernels::fill(weights.args.gradient, 0);
    weights.args.step = kernels::make_step_state(weights.args.gradient.context(), {.steps = step, .taken = 1});
    kernels::update(weights.args);
  }
  EXPECT_EQ(doubles(weights.args.state[0]), m);
  EXPECT_EQ(doubles(weights.args.state[1]), v);
  for (std::size_t block = 0; block < scales.size(); ++block)
    EXPECT_NEAR(doubles(weights.args.scales[0])[block], scales[block] * std::pow(0.9, 29), 1e-5 * scales[block]);
}

TEST(UpdateBlocks, OfNothingButZerosKeepZeros) {
  BlockedWeights weights(testing::context(1), 300);
  const std::vector<double> before = doubles(weights.args.parameter);
  weights.args.range.weight_decay = 0;
  weights.args.gradient = zeros(weights.args.parameter.context(), {300});
  weights.args.step = kernels::make_step_state(weights.args.parameter.context(), {.steps = 1, .taken = 1, .lr = 1});
  kernels::update(weights.args);
  EXPECT_EQ(doubles(weights.args.parameter), before);
  EXPECT_EQ(doubles(weights.args.scales[0]), (std::vector<double>{0, 0}));
  EXPECT_EQ(doubles(weights.args.state[0]), std::vector<double>(300, 127));
}

TEST(UpdateBlocks, SayWhatIsWrongWithTheirStates) {
  const Context context = testing::context(1);
  const auto complaint = [&](auto&& spoil) {
    BlockedWeights weights(context, 300);
    weights.args.gradient = weights.gradient(1);
    weights.args.step = kernels::make_step_state(context, {.steps = 1, .taken = 1});
    spoil(weights.args);
    return error_of([&] { kernels::update(weights.args); });
  };
  EXPECT_EQ(complaint([](UpdateArgs&) {}), "");
  EXPECT_NE(complaint([&](UpdateArgs& args) { args.state[1] = zeros(context, {300}); }).find("v must be u8"),
            std::string::npos);
  EXPECT_NE(complaint([&](UpdateArgs& args) { args.scales[1] = {}; }).find("v's scales"), std::string::npos);
  EXPECT_NE(complaint([&](UpdateArgs& args) { args.scales[0] = zeros(context, {1}); }).find("m's scales"),
            std::string::npos);
  EXPECT_NE(
      complaint([&](UpdateArgs& args) { args.settings = SgdSettings{.momentum = 0.9}; }).find("no states in 8 bits"),
      std::string::npos);
}

}  // namespace
}  // namespace keel
