// Norms over whole parameters, as some update rules need them.

#include <gtest/gtest.h>

#include <cmath>

#include "keel/kernels/elementwise.h"
#include "tests/kernels/every_rule.h"
#include "tests/kernels/row_support.h"

namespace keel {
namespace {

using namespace keel::testing;

struct Problem {
  UpdateArgs args{};

  Problem(const Context& context, const UpdateSettings& settings, std::int64_t count, DType dtype = DType::f32) {
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    args.parameter = uniform_tensor(context, {count}, 1, dtype);
    if (dtype != wide) args.master = uniform_tensor(context, {count}, 5);
    args.gradient = uniform_tensor(context, {count}, 2, wide);
    for (std::size_t i = 0; i < state_names(settings).size(); ++i)
      args.state[i] = uniform_tensor(context, {count}, 3 + i, wide, 0, 1);
    args.settings = settings;
    args.range = {.weight_decay = 0.1};
    args.step = kernels::make_step_state(context, {.steps = 3, .taken = 1, .lr = 0.1, .gradient_scale = 0.5});
  }
  UpdateArgs part(std::int64_t begin, std::int64_t end) const {
    UpdateArgs cut = args;
    for (Tensor* tensor : {&cut.parameter, &cut.master, &cut.gradient, &cut.state[0], &cut.state[1]})
      if (tensor->defined()) *tensor = tensor->slice(0, begin, end);
    return cut;
  }
};

std::vector<double> squares_of(const UpdateArgs& args) {
  const Tensor squares = zeros(args.parameter.context(), {norm_count(args.settings)}, DType::f64);
  kernels::measure_norms(args, squares);
  return doubles(squares);
}

TEST(UpdateNorms, OfLambAreThoseOfWeightsAndDirection) {
  const Context context = testing::context(2);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const Problem problem(context, LambSettings{}, 40007, dtype);
    const UpdateArgs& args = problem.args;
    const std::vector<double> weights = doubles(args.master.defined() ? args.master : args.parameter);
    const std::vector<double> g = doubles(args.gradient), m = doubles(args.state[0]), v = doubles(args.state[1]);
    double weight = 0, direction = 0;
    for (std::size_t i = 0; i < g.size(); ++i) {
      const double half = 0.5 * g[i], m1 = 0.9 * m[i] + 0.1 * half, v1 = 0.999 * v[i] + 0.001 * half * half;
      const double u =
          m1 / (1 - std::pow(0.9, 3)) / (std::sqrt(v1 / (1 - std::pow(0.999, 3))) + 1e-6) + 0.1 * weights[i];
      weight += weights[i] * weights[i];
      direction += u * u;
    }
    const std::vector<double> squares = squares_of(args);
    EXPECT_NEAR(squares[0] / weight, 1, 1e-12) << dtype;
    EXPECT_NEAR(squares[1] / direction, 1, dtype == DType::f64 ? 1e-12 : 1e-6) << dtype;
  }
}

TEST(UpdateNorms, OfPartsAddUpAndDoNotDependOnThreads) {
  const Context one = testing::context(1), two = testing::context(2);
  for (const RuleCase& rule : every_rule()) {
    if (norm_count(rule.settings) == 0) continue;
    const Problem problem(one, rule.settings, 50021), same(two, rule.settings, 50021);
    const std::vector<double> whole = squares_of(problem.args);
    EXPECT_EQ(squares_of(same.args), whole) << rule.name;
    const std::vector<double> left = squares_of(problem.part(0, 17)), right = squares_of(problem.part(17, 50021));
    for (std::size_t n = 0; n < whole.size(); ++n)
      EXPECT_NEAR(left[n] + right[n], whole[n], 1e-12 * whole[n]) << rule.name;
  }
}

TEST(UpdateNorms, ChangeNothingElseAndNothingInAStepThatIsNotTaken) {
  const Context context = testing::context(1);
  for (const RuleCase& rule : every_rule()) {
    if (norm_count(rule.settings) == 0) continue;
    Problem problem(context, rule.settings, 100, DType::bf16);
    const Problem untouched(context, rule.settings, 100, DType::bf16);
    squares_of(problem.args);
    for (const auto& [a, b] : {std::pair{problem.args.parameter, untouched.args.parameter},
                               std::pair{problem.args.master, untouched.args.master}})
      EXPECT_TRUE(same_bits(a, b)) << rule.name;
    for (std::size_t i = 0; i < state_names(rule.settings).size(); ++i)
      EXPECT_TRUE(same_bits(problem.args.state[i], untouched.args.state[i])) << rule.name;
    problem.args.step = kernels::make_step_state(context, {.steps = 3, .taken = 0});
    EXPECT_EQ(squares_of(problem.args), std::vector<double>(2, 0)) << rule.name;
  }
}

TEST(UpdateNorms, OfZeroLeaveTheStepAsItIs) {
  const Context context = testing::context(1);
  // LAMB: the first step of weights 0 has a direction of length 1 in each element.
  Problem lamb(context, LambSettings{}, 4);
  kernels::fill(lamb.args.parameter, 0);
  for (const std::size_t i : {0, 1}) kernels::fill(lamb.args.state[i], 0);
  lamb.args.step = kernels::make_step_state(context, {.steps = 1, .taken = 1, .lr = 0.1});
  lamb.args.shared = tensor_of(context, squares_of(lamb.args), {2}, DType::f64);
  kernels::update(lamb.args);
  for (const double weight : doubles(lamb.args.parameter)) EXPECT_NEAR(std::abs(weight), 0.1, 1e-4);
  // LARS: without a gradient not even decay moves a weight.
  Problem lars(context, LarsSettings{.momentum = 0}, 4);
  const std::vector<double> before = doubles(lars.args.parameter);
  kernels::fill(lars.args.gradient, 0);
  lars.args.shared = tensor_of(context, squares_of(lars.args), {2}, DType::f64);
  kernels::update(lars.args);
  EXPECT_EQ(doubles(lars.args.parameter), before);
}

TEST(UpdateNorms, AreRefusedToRulesThatNeedNone) {
  const Problem problem(testing::context(1), LionSettings{}, 4);
  EXPECT_EQ(
      error_of([&] { kernels::measure_norms(problem.args, zeros(problem.args.parameter.context(), {2}, DType::f64)); }),
      "lion: needs no norms");
}

}  // namespace
}  // namespace keel
