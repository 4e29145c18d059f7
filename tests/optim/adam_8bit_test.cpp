// Adam with states in 8 bits as an optimizer: what it keeps of which parameter, and how near it stays to Adam.

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "keel/kernels/dynamic_map.h"
#include "keel/kernels/step_state.h"
#include "keel/optim/elementwise.h"
#include "tests/kernels/row_support.h"

namespace keel {
namespace {

using namespace keel::testing;

std::unique_ptr<Optimizer> adam_8bit(std::int64_t min_size, std::vector<UpdateSettings> variants = {}) {
  return make_elementwise("Adam8bit", {.settings = AdamSettings{.decoupled = true, .min_8bit_size = min_size},
                                       .variants = std::move(variants)});
}

std::vector<std::string_view> kinds_of(const Optimizer& optimizer, const Dims& shape,
                                       const ParameterGroup& group = {}) {
  std::vector<std::string_view> names;
  for (const StateKind& kind : optimizer.parameter_state(shape, group)) names.push_back(kind.name);
  return names;
}

TEST(Adam8bitOptimizer, KeepsCodesOfLargeParametersThatAreNoEmbeddings) {
  const std::vector<std::string_view> codes = {"m_codes", "v_codes", "m_scales", "v_scales"}, numbers = {"m", "v"};
  const auto optimizer = adam_8bit(4096);
  EXPECT_EQ(kinds_of(*optimizer, {64, 64}), codes);
  EXPECT_EQ(kinds_of(*optimizer, {4096}), codes);
  EXPECT_EQ(kinds_of(*optimizer, {4095}), numbers);
  EXPECT_EQ(kinds_of(*optimizer, {64, 64}, {.full_state = true}), numbers);
  // A group may have a bound of its own.
  const auto grouped = adam_8bit(4096, {AdamSettings{.decoupled = true, .min_8bit_size = 1 << 20}});
  EXPECT_EQ(kinds_of(*grouped, {64, 64}, {.variant = 1}), numbers);
}

TEST(Adam8bitOptimizer, RefusesBoundsBelowABlockAndTheLargestMeanSquares) {
  EXPECT_EQ(error_of([] { adam_8bit(255); }),
            "Adam8bit: min_8bit_size must be at least a block of 256 elements, or 0, got 255");
  EXPECT_EQ(
      error_of([] { make_elementwise("Adam8bit", {.settings = AdamSettings{.amsgrad = true, .min_8bit_size = 256}}); }),
      "Adam8bit: amsgrad is not offered in 8 bits");
}

// A valley of 8192 weights, whose gradients come with as much Gaussian noise as there is slope at first.
std::vector<double> descend(const Context& context, bool codes, double& distance) {
  constexpr std::int64_t kCount = 8192;
  const auto optimizer = codes ? adam_8bit(4096) : make_adamw({.weight_decay = 0});
  ParameterRange range;
  range.parameter = zeros(context, {kCount});
  range.shape = {kCount};
  if (codes)
    for (const StateKind& kind : optimizer->parameter_state(range.shape, {}))
      range.state.push_back(zeros(context, {kind.count(kCount)}, kind.dtype(DType::f32)));
  else range.state = {zeros(context, {kCount}), zeros(context, {kCount})};
  const std::vector<double> goal = uniform(kCount, 3);
  std::mt19937_64 engine(7);
  std::normal_distribution<double> noise;
  constexpr std::int64_t kSteps = 400;
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    std::vector<double> gradient = doubles(range.parameter);
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += noise(engine) - goal[i];
    range.gradient = tensor_of(context, gradient, {kCount});
    const double rate = 0.02 * (1 - static_cast<double>(step - 1) / kSteps);
    optimizer->update(std::span(&range, 1),
                      {kernels::make_step_state(context, {.steps = step, .taken = 1, .lr = rate})});
  }
  distance = relative_error(doubles(range.parameter), goal);
  return doubles(range.parameter);
}

TEST(Adam8bitOptimizer, StaysNearAdamUnderNoise) {
  const Context context = testing::context(2);
  double wide_distance = 0, narrow_distance = 0;
  const std::vector<double> wide = descend(context, false, wide_distance);
  const std::vector<double> narrow = descend(context, true, narrow_distance);
  EXPECT_LT(wide_distance, 0.15);
  EXPECT_LT(narrow_distance, 1.005 * wide_distance);
  EXPECT_LT(relative_error(narrow, wide), 0.005);
}

}  // namespace
}  // namespace keel
