#include "keel/optim/elementwise.h"

#include <gtest/gtest.h>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/step_state.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::tensor_of;
using testing::uniform_tensor;

struct Numbers {
  Tensor parameter, gradient;
  std::vector<Tensor> state;

  Numbers(const Context& context, const Optimizer& optimizer, std::int64_t count)
      : parameter(uniform_tensor(context, {count}, 1)), gradient(uniform_tensor(context, {count}, 2)) {
    for (std::size_t i = 0; i < optimizer.state_names().size(); ++i) state.push_back(zeros(context, {count}));
  }
  ParameterRange range(std::int64_t begin, std::int64_t end, ParameterGroup group = {}) const {
    ParameterRange range{parameter.slice(0, begin, end), {}, gradient.slice(0, begin, end), {}, group};
    for (const Tensor& each : state) range.state.push_back(each.slice(0, begin, end));
    return range;
  }
};

std::vector<std::unique_ptr<Optimizer>> every_optimizer() {
  std::vector<std::unique_ptr<Optimizer>> all;
  all.push_back(make_adamw({.weight_decay = 0.1}));
  all.push_back(make_sgd({.weight_decay = 0.1}));
  all.push_back(make_sgd({.momentum = 0.9, .dampening = 0.2}));
  all.push_back(make_sgd({.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}));
  all.push_back(make_elementwise("Adam", {.settings = AdamSettings{.amsgrad = true}, .weight_decay = 0.1}));
  return all;
}

TEST(Optimizer, UpdatesAWholeAndItsPartsToTheSameBits) {
  const Context context = testing::context(2);
  for (const auto& optimizer : every_optimizer()) {
    const Numbers whole(context, *optimizer, 1000), parts(context, *optimizer, 1000);
    for (std::int64_t step = 1; step <= 3; ++step) {
      const StepInput input{
          kernels::make_step_state(context, {.steps = step, .taken = 1, .lr = 0.01, .gradient_scale = 0.5})};
      optimizer->update(std::vector{whole.range(0, 1000)}, input);
      optimizer->update(std::vector{parts.range(0, 1), parts.range(1, 640), parts.range(640, 1000)}, input);
    }
    EXPECT_EQ(doubles(whole.parameter), doubles(parts.parameter)) << optimizer->name();
    for (std::size_t i = 0; i < whole.state.size(); ++i) EXPECT_EQ(doubles(whole.state[i]), doubles(parts.state[i]));
  }
}

TEST(Optimizer, StochasticRoundingDoesNotDependOnHowWeightsAreCut) {
  const Context context = testing::context(2);
  const auto optimizer = make_adamw({.stochastic_rounding = true, .seed = 3});
  ASSERT_FALSE(optimizer->requirements().master);
  const auto train = [&](const std::vector<std::int64_t>& cuts) {
    Numbers numbers(context, *optimizer, 1000);
    numbers.parameter = kernels::cast(numbers.parameter, DType::bf16);
    std::vector<ParameterRange> ranges;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      ranges.push_back(numbers.range(cuts[i], cuts[i + 1]));
      ranges.back().first = cuts[i];
    }
    for (std::int64_t step = 1; step <= 3; ++step)
      optimizer->update(ranges, {kernels::make_step_state(context, {.steps = step, .taken = 1, .lr = 1e-3})});
    return doubles(numbers.parameter);
  };
  EXPECT_EQ(train({0, 1000}), train({0, 1, 638, 1000}));
}

TEST(Optimizer, ScalesRateAndDecayByTheGroup) {
  const Context context = testing::context(1);
  const auto with = make_sgd({.weight_decay = 0.2}), without = make_sgd({});
  const Numbers a(context, *with, 8), b(context, *without, 8), c(context, *without, 8);
  const StepInput input{kernels::make_step_state(context, {.steps = 1, .taken = 1, .lr = 0.1})};
  with->update(std::vector{a.range(0, 8, {.lr_factor = 1, .decay_factor = 0})}, input);
  const Numbers own(context, *with, 8), twice(context, *with, 8);
  const auto double_decay = make_sgd({.weight_decay = 0.4});
  with->update(std::vector{own.range(0, 8, {.decay_factor = 0, .weight_decay = 0.4})}, input);
  double_decay->update(std::vector{twice.range(0, 8)}, input);
  EXPECT_EQ(doubles(own.parameter), doubles(twice.parameter));
  without->update(std::vector{b.range(0, 8)}, input);
  EXPECT_EQ(doubles(a.parameter), doubles(b.parameter));
  without->update(std::vector{c.range(0, 8, {.lr_factor = 0, .decay_factor = 1})}, input);
  EXPECT_EQ(doubles(c.parameter), doubles(uniform_tensor(context, {8}, 1)));
}

TEST(Optimizer, DecaysMatricesAndNotBiasesOrNorms) {
  EXPECT_EQ(decay_matrices_only("h.0.mlp.c_fc.weight", {4, 2}).decay_factor, 1);
  EXPECT_EQ(decay_matrices_only("h.0.mlp.c_fc.bias", {4}).decay_factor, 0);
  EXPECT_EQ(decay_matrices_only("temperature", {}).decay_factor, 0);
}

TEST(Optimizer, AVariantIsAnOptimizerOfItsOwn) {
  const Context context = testing::context(1);
  const AdamSettings settings, others{.beta1 = 0.5, .beta2 = 0.7, .epsilon = 1e-3};
  const auto both = make_elementwise("Adam", {.settings = settings, .variants = {others}});
  const auto first = make_elementwise("Adam", {.settings = settings}),
             second = make_elementwise("Adam", {.settings = others});
  const Numbers together(context, *both, 100), apart(context, *both, 100);
  for (std::int64_t step = 1; step <= 3; ++step) {
    const StepInput input{.step = kernels::make_step_state(context, {.steps = step, .taken = 1, .lr = 0.1})};
    both->update(std::vector{together.range(0, 60), together.range(60, 100, {.variant = 1})}, input);
    first->update(std::vector{apart.range(0, 60)}, input);
    second->update(std::vector{apart.range(60, 100)}, input);
  }
  EXPECT_EQ(doubles(together.parameter), doubles(apart.parameter));
}

TEST(Optimizer, AVariantThatKeepsSomethingElseIsRefused) {
  const auto refusal = [](const UpdateSettings& settings, const UpdateSettings& variant) -> std::string {
    try {
      make_elementwise("X", {.settings = settings, .variants = {variant}});
    } catch (const Error& error) { return error.what(); }
    return "";
  };
  const std::string keeps = "X: a group's options must not change what is kept for each element";
  EXPECT_EQ(refusal(AdamSettings{}, AdamSettings{.amsgrad = true}), keeps);
  EXPECT_EQ(refusal(SgdSettings{.momentum = 0.9}, SgdSettings{}), keeps);
  EXPECT_EQ(refusal(AdagradSettings{}, AdagradSettings{.initial_accumulator = 1}), keeps);
  EXPECT_EQ(refusal(AdamSettings{}, SgdSettings{}), keeps);
  EXPECT_EQ(refusal(AdamSettings{}, AdamSettings{.beta1 = 2}), "X: betas must be in [0, 1), got 2 and 0.999");
  EXPECT_NE(refusal(NAdamSettings{}, NAdamSettings{.beta1 = 0.8}).find("all elements share a number"),
            std::string::npos);
  EXPECT_EQ(refusal(SgdSettings{.momentum = 0.9}, SgdSettings{.momentum = 0.5}), "");
}

}  // namespace
}  // namespace keel
