// What decides about a step: norm, skip, clipping, learning rate and loss scale.

#include "keel/kernels/step_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support.h"

namespace keel {
namespace {

using testing::tensor_of;

TEST(DecideStep, DividesByTokensAndClipsByTheFp32Norm) {
  const Context context = testing::context();
  const Tensor state = kernels::make_step_state(context, {.steps = 4});
  kernels::add_squares(tensor_of(context, {3, 4}, {2}), state);
  kernels::add_squares(tensor_of(context, {12}, {1}), state, 2);
  kernels::add_tokens(state, 3);
  kernels::add_tokens(state, 1);
  kernels::decide_step({.state = state, .clip = 1, .lr = 0.5});
  const StepState decided = kernels::read_step_state(state);
  EXPECT_EQ(decided.grad_norm, 13.0 / 4);
  EXPECT_EQ(decided.gradient_scale, 0.25 * static_cast<double>(1.0f / (3.25f + 1e-6f)));
  EXPECT_EQ(decided.lr, 0.5);
  EXPECT_EQ(decided.steps, 5);
  EXPECT_EQ(decided.taken, 1);
  EXPECT_EQ(decided.first_bad, StepPartial::kNothingBad);
  EXPECT_EQ(decided.tokens, 4);
  EXPECT_EQ(decided.partial.squares, 0);  // ready for the next step
}

TEST(AddNoted, AddsSquaresAndTheFirstBadElementAndNothingElse) {
  const Context context = testing::context();
  const double nan = std::nan("");
  const Tensor state = kernels::make_step_state(context, {.steps = 4}), noted = kernels::make_step_state(context);
  kernels::add_squares(tensor_of(context, {3, 4}, {2}), state);
  kernels::add_squares(tensor_of(context, {12}, {1}), noted);
  kernels::add_tokens(noted, 7);
  kernels::add_noted(noted, state, 2);
  StepState sum = kernels::read_step_state(state);
  EXPECT_EQ(sum.partial.squares, 169);
  EXPECT_EQ(sum.partial.bad, StepPartial::kNothingBad);
  EXPECT_EQ(sum.partial.tokens, 0);
  EXPECT_EQ(sum.steps, 4);
  kernels::add_squares(tensor_of(context, {1, nan}, {2}), noted, 1);
  kernels::add_noted(noted, state, 100);
  kernels::add_noted(noted, state, 50);
  kernels::add_noted(noted, state, 70);
  sum = kernels::read_step_state(state);
  EXPECT_EQ(sum.partial.bad, 52);
  EXPECT_TRUE(std::isnan(sum.partial.squares));
}

TEST(ClipValues, HoldsMeansToTheLimitAndLeavesAllOtherBits) {
  const Context context = testing::context(2);
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    // 4 tokens and a scale of 8: elements are 32 times what they are a mean of.
    const Tensor state = kernels::make_step_state(context, {.gradient_scale = 1.0 / 32});
    const std::vector<double> values = {0, 16, -16, 15.5, 17, -17, 3000, -3000, 1e-4, -1e-4};
    const Tensor x = tensor_of(context, values, {10}, dtype);
    const std::vector<double> before = testing::doubles(x);
    kernels::clip_values(x, state, 0.5);
    const std::vector<double> after = testing::doubles(x);
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(after[i], std::clamp(before[i], -16.0, 16.0)) << dtype << ' ' << values[i];
  }
  const Tensor large = testing::uniform_tensor(context, {70001}, 3, DType::f32, -2, 2);
  std::vector<double> expected = testing::doubles(large);
  for (double& each : expected) each = std::clamp(each, -1.0, 1.0);
  kernels::clip_values(large, kernels::make_step_state(context), 1);
  EXPECT_TRUE(testing::doubles(large) == expected);
  const Tensor half = tensor_of(context, {65504, -65504}, {2}, DType::f16);
  kernels::clip_values(half, kernels::make_step_state(context, {.gradient_scale = 1e-9}), 1);
  EXPECT_EQ(testing::doubles(half), (std::vector<double>{65504, -65504})) << "fp16 does not reach the limit";
  EXPECT_NO_THROW(kernels::clip_values(empty(context, {0}), kernels::make_step_state(context), 1));
  EXPECT_THROW(kernels::clip_values(large, kernels::make_step_state(context), 0), Error);
}

TEST(DecideStep, SkipsAndNamesTheFirstElementThatIsNotFinite) {
  const Context context = testing::context();
  const Tensor state = kernels::make_step_state(context);
  const double infinity = std::numeric_limits<double>::infinity();
  kernels::add_squares(tensor_of(context, {1, 2, 3}, {3}), state);
  kernels::add_squares(tensor_of(context, {1, infinity, std::nan("")}, {3}), state, 3);
  const Tensor rates = from_values(context, std::vector<double>{0.1, 0.2}, {2});
  kernels::add_tokens(state, 1);
  kernels::decide_step({.state = state, .curves = {.rates = rates}});
  StepState decided = kernels::read_step_state(state);
  EXPECT_EQ(decided.taken, 0);
  EXPECT_EQ(decided.steps, 0);
  EXPECT_EQ(decided.first_bad, 4);
  for (const double lr : {0.1, 0.2, 0.2}) {  // the rate follows the steps that were taken
    kernels::add_tokens(state, 1);
    kernels::decide_step({.state = state, .curves = {.rates = rates}});
    decided = kernels::read_step_state(state);
    EXPECT_EQ(decided.lr, lr);
    EXPECT_EQ(decided.momentum, StepState::kOwnMomentum);
    EXPECT_EQ(decided.taken, 1);
  }
}

TEST(DecideStep, FollowsTheCurveOfTheMomentumByTheStepsTaken) {
  const Context context = testing::context();
  const Tensor state = kernels::make_step_state(context);
  const Tensor rates = from_values(context, std::vector<double>{0.5}, {1}),
               momenta = from_values(context, std::vector<double>{0.95, 0, StepState::kOwnMomentum}, {3});
  const auto momentum_after = [&](double gradient) {
    kernels::add_squares(tensor_of(context, {gradient}, {1}), state);
    kernels::add_tokens(state, 1);
    kernels::decide_step({.state = state, .curves = {.rates = rates, .momenta = momenta}});
    return kernels::read_step_state(state).momentum;
  };
  EXPECT_EQ(momentum_after(1), 0.95);
  EXPECT_EQ(momentum_after(std::nan("")), 0);
  EXPECT_EQ(momentum_after(1), 0);  // the one before was skipped
  EXPECT_EQ(momentum_after(1), StepState::kOwnMomentum);
  EXPECT_EQ(momentum_after(1), StepState::kOwnMomentum);
}

TEST(DecideStep, AddsThePartialsOfRanksInTheirOrder) {
  const Context context = testing::context();
  const StepPartial partials[] = {{1e16, StepPartial::kNothingBad, 3}, {1, 7, 0}, {1, 5, 1}};
  std::vector<std::uint8_t> bytes(sizeof partials);
  std::memcpy(bytes.data(), partials, sizeof partials);
  const Tensor state = kernels::make_step_state(context, {.steps = 4});
  kernels::add_tokens(state, 100);  // its own partial is among those of the ranks, or it is not
  kernels::decide_step({.state = state, .partials = from_values(context, bytes, {72}), .lr = 1});
  const StepState decided = kernels::read_step_state(state);
  EXPECT_EQ(decided.tokens, 4);
  EXPECT_EQ(decided.first_bad, 5);
  EXPECT_EQ(decided.grad_norm, std::sqrt(1e16 + 1 + 1) / 4);  // from the left: each 1 is lost
  EXPECT_EQ(decided.partial.tokens, 0);
}

TEST(DecideStep, IsNotTakenWithoutTokens) {
  const Context context = testing::context();
  const Tensor state = kernels::make_step_state(context, {.steps = 4});
  kernels::decide_step({.state = state, .lr = 1});
  const StepState decided = kernels::read_step_state(state);
  EXPECT_EQ(decided.taken, 0);
  EXPECT_EQ(decided.skips_in_a_row, 0);
}

// Runs steps whose gradient is finite where `good` says so, and returns the scale that each one's loss had.
std::vector<float> scales(const LossScaling& scaling, float initial, const std::vector<bool>& good) {
  const Context context = testing::context();
  const auto hysteresis = static_cast<std::int32_t>(scaling.hysteresis);
  const Tensor state = kernels::make_step_state(context, {.loss_scale = initial, .hysteresis_left = hysteresis});
  std::vector<float> used;
  for (const bool finite : good) {
    used.push_back(kernels::loss_scale_of(state).to_vector<float>()[0]);
    const double gradient = finite ? 3.0 * static_cast<double>(used.back()) : std::nan("");
    kernels::add_squares(tensor_of(context, {gradient}, {1}), state);
    kernels::add_tokens(state, 1);
    kernels::decide_step({.state = state, .lr = 1, .scaling = scaling});
    const StepState decided = kernels::read_step_state(state);
    EXPECT_EQ(decided.taken, finite);
    // What catches a division by the next step's scale: the gradient comes out as it was.
    if (finite) { EXPECT_EQ(decided.gradient_scale * gradient, 3.0); }
  }
  return used;
}

TEST(LossScale, GrowsAfterAnIntervalAndIsTheOneThatGradientsAreDividedBy) {
  LossScaling scaling = LossScaling::dynamic();
  scaling.interval = 2;
  EXPECT_EQ(scales(scaling, 256, std::vector<bool>(10, true)),
            (std::vector<float>{256, 256, 512, 512, 1024, 1024, 2048, 2048, 4096, 4096}));
}

TEST(LossScale, ShrinksAtEachOverflowAsPyTorchDoes) {
  LossScaling scaling = LossScaling::dynamic();
  scaling.interval = 3;
  EXPECT_EQ(scales(scaling, 256, {true, false, true, true, false, true, true, true, true}),
            (std::vector<float>{256, 256, 128, 128, 128, 64, 64, 64, 128}));
}

TEST(LossScale, WaitsForItsHysteresisAsDeepSpeedDoes) {
  const LossScaling scaling{.growth = 2, .backoff = 0.5, .interval = 1000, .hysteresis = 2, .floor = 1};
  EXPECT_EQ(scales(scaling, 256, {true, false, true, false, false, true}),
            (std::vector<float>{256, 256, 256, 256, 128, 64}));
}

TEST(LossScale, StaysAboveItsFloorAndBelowInfinity) {
  LossScaling scaling{.growth = 2, .backoff = 0.5, .interval = 1, .hysteresis = 1, .floor = 1};
  EXPECT_EQ(scales(scaling, 2, {false, false, false}), (std::vector<float>{2, 1, 1}));
  scaling.growth = 1e30;
  EXPECT_EQ(scales(scaling, 1e20f, {true, true}), (std::vector<float>{1e20f, 1e20f}));
}

TEST(LossScale, StaysAsItIsUnlessAskedFor) {
  EXPECT_EQ(scales({}, 8, {true, false, true}), (std::vector<float>{8, 8, 8}));
}

}  // namespace
}  // namespace keel
