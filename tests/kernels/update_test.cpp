#include "keel/kernels/update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "keel/kernels/stochastic_rounding.h"
#include "keel/kernels/update_rule.h"
#include "tests/kernels/row_support.h"

namespace keel {
namespace {

using namespace keel::testing;
using kernels::all_finite;
using kernels::sum_of_squares;
using kernels::update;

DType state_dtype(DType parameter) { return parameter == DType::f64 ? DType::f64 : DType::f32; }

// A step that is taken.
Tensor step_of(const Context& context, std::int64_t steps, double lr, double gradient_scale) {
  return kernels::make_step_state(context, {.steps = steps, .taken = 1, .lr = lr, .gradient_scale = gradient_scale});
}

constexpr AdamSettings kAdamW{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decoupled = true};

UpdateArgs adamw_args(const Context& context, std::int64_t count, DType parameter, DType gradient) {
  UpdateArgs args{};
  args.parameter = uniform_tensor(context, {count}, 1, parameter);
  if (parameter != state_dtype(parameter)) args.master = tensor_of(context, doubles(args.parameter), {count});
  args.gradient = uniform_tensor(context, {count}, 2, gradient);
  args.state[0] = zeros(context, {count}, state_dtype(parameter));
  args.state[1] = zeros(context, {count}, state_dtype(parameter));
  args.settings = kAdamW;
  args.range.weight_decay = 0.1;
  return args;
}

UpdateArgs sgd_args(const Context& context, std::int64_t count, DType parameter, DType gradient) {
  UpdateArgs args{};
  args.parameter = uniform_tensor(context, {count}, 1, parameter);
  if (parameter != state_dtype(parameter)) args.master = tensor_of(context, doubles(args.parameter), {count});
  args.gradient = uniform_tensor(context, {count}, 2, gradient);
  args.settings = SgdSettings{};
  args.range.weight_decay = 0.05;
  return args;
}

// The gradient of each step is the first one, turned by the step, so that moments matter.
void turn_gradient(const Tensor& gradient, std::int64_t step) {
  const std::vector<double> fresh = uniform(gradient.numel(), 100 + static_cast<std::uint64_t>(step));
  const Tensor values = tensor_of(gradient.context(), fresh, gradient.shape(), gradient.dtype());
  std::memcpy(gradient.raw(), values.raw(), gradient.bytes());
}

struct DtypePair {
  DType parameter, gradient;
};
constexpr DtypePair kPairs[] = {{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32},
                                {DType::f16, DType::f16}, {DType::f16, DType::f32},   {DType::f64, DType::f64},
                                {DType::f64, DType::f32}};

// The narrow parameter is its master rounded to nearest even.
void expect_rounded_master(const Tensor& parameter, const Tensor& master) {
  EXPECT_TRUE(same_bits(parameter, tensor_of(master.context(), doubles(master), parameter.shape(), parameter.dtype())));
}

TEST(AdamW, FollowsADoubleReferenceForTwentySteps) {
  const Context context = testing::context();
  for (const auto& [parameter, gradient] : kPairs) {
    UpdateArgs args = adamw_args(context, 1237, parameter, gradient);
    std::vector<double> p = doubles(args.parameter), m(p.size()), v(p.size());
    const double lr = 0.01, scale = 0.5;
    for (std::int64_t step = 1; step <= 20; ++step) {
      args.step = step_of(context, step, lr, scale);
      turn_gradient(args.gradient, step);
      const std::vector<double> g = doubles(args.gradient);
      const double bias1 = 1 - std::pow(kAdamW.beta1, step), bias2 = 1 - std::pow(kAdamW.beta2, step);
      for (std::size_t i = 0; i < p.size(); ++i) {
        const double scaled = g[i] * scale;
        p[i] -= lr * args.range.weight_decay * p[i];
        m[i] = kAdamW.beta1 * m[i] + (1 - kAdamW.beta1) * scaled;
        v[i] = kAdamW.beta2 * v[i] + (1 - kAdamW.beta2) * scaled * scaled;
        p[i] -= lr / bias1 * m[i] / (std::sqrt(v[i] / bias2) + kAdamW.epsilon);
      }
      update(args);
    }
    const double allowed = parameter == DType::f64 ? 1e-13 : 1e-6;
    EXPECT_LT(relative_error(doubles(args.master.defined() ? args.master : args.parameter), p), allowed) << parameter;
    EXPECT_LT(relative_error(doubles(args.state[0]), m), allowed);
    EXPECT_LT(relative_error(doubles(args.state[1]), v), allowed);
    if (args.master.defined()) expect_rounded_master(args.parameter, args.master);
  }
}

TEST(AdamW, SmallStepsReachANarrowParameterThroughItsMaster) {
  const Context context = testing::context();
  UpdateArgs args = adamw_args(context, 64, DType::bf16, DType::bf16);
  for (const Tensor& one : {args.parameter, args.master, args.gradient})
    visit_floating(one.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      std::fill(one.data<T>(), one.data<T>() + 64, T(1.0f));
    });
  args.range.weight_decay = 0;
  for (std::int64_t step = 1; step <= 100; ++step) {
    args.step = step_of(context, step, 1e-4, 1);  // far below the spacing of bf16 near 1
    update(args);
  }
  EXPECT_NEAR(doubles(args.parameter)[0], 1 - 100 * 1e-4, 2e-3);
}

// Rounds `value` with `count` words of a stream.
template <class T>
std::vector<double> rounded_often(float value, std::int64_t count) {
  std::vector<double> results;
  const PhiloxKey key = rounding_key(rounding_seed(5), 1);
  for (std::int64_t i = 0; i < count; ++i)
    results.push_back(
        static_cast<float>(round_stochastically<T>(value, stream_word(key, static_cast<std::uint64_t>(i)))));
  return results;
}

template <class T>
void check_stochastic_rounding(const std::vector<double>& exact, const std::vector<double>& between) {
  for (const double value : exact)
    for (const double result : rounded_often<T>(static_cast<float>(value), 100)) EXPECT_EQ(result, value);
  for (const double value : between) {
    const auto x = static_cast<float>(value);
    const double nearest = static_cast<float>(T(x));
    const std::int64_t count = 20000;
    double below = -INFINITY, above = INFINITY, mean = 0;
    for (const double result : rounded_often<T>(x, count)) {
      (result < static_cast<double>(x) ? below : above) = result;
      mean += result / static_cast<double>(count);
    }
    EXPECT_TRUE(nearest == below || nearest == above) << value;
    for (const double result : rounded_often<T>(x, count)) EXPECT_TRUE(result == below || result == above) << value;
    // Within five standard deviations.
    EXPECT_NEAR(mean, static_cast<double>(x), 5 * 0.5 * (above - below) / std::sqrt(static_cast<double>(count)));
  }
}

TEST(StochasticRounding, KeepsWhatIsExactAndIsRightOnAverage) {
  check_stochastic_rounding<bf16>({0, 1, -1, 1.5, -3.140625, 0x1p-126, 0x1p-133, 3.3895313892515355e38},
                                  {1.001, -1.001, 3.1415926, 1e-30, -7.77e20, 0x1.8p-134});
  check_stochastic_rounding<f16>({0, 1, -1, 1.5, -3.140625, 65504, 0x1p-14, 0x1p-24, -0x1.ff8p-15},
                                 {1.0001, -1.0001, 3.1415926, 1234.56, 1e-5, -3e-7, 1e-8, 0x1.ffep-15});
  for (const double value : rounded_often<bf16>(INFINITY, 10)) EXPECT_EQ(value, INFINITY);
  for (const double value : rounded_often<f16>(-INFINITY, 10)) EXPECT_EQ(value, -INFINITY);
  for (const double value : rounded_often<bf16>(NAN, 10)) EXPECT_TRUE(std::isnan(value));
  for (const double value : rounded_often<f16>(NAN, 10)) EXPECT_TRUE(std::isnan(value));
  for (const double value : rounded_often<f16>(1e6f, 10)) EXPECT_EQ(value, INFINITY);
}

TEST(StochasticRounding, LetsSmallStepsReachAParameterWithoutAMaster) {
  const Context context = testing::context();
  for (const DType dtype : {DType::bf16, DType::f16}) {
    UpdateArgs args = adamw_args(context, 4096, dtype, dtype);
    for (const Tensor& one : {args.parameter, args.gradient})
      visit_floating(one.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        std::fill(one.data<T>(), one.data<T>() + 4096, T(1.0f));
      });
    args.master = {};
    args.range.weight_decay = 0;
    args.stochastic_rounding = true;
    for (std::int64_t step = 1; step <= 100; ++step) {
      args.step = step_of(context, step, 1e-4, 1);  // below half the spacing near 1
      update(args);
    }
    double mean = 0;
    for (const double value : doubles(args.parameter)) mean += value / 4096;
    EXPECT_NEAR(mean, 1 - 100 * 1e-4, 3e-4) << dtype;
  }
}

TEST(StochasticRounding, DependsOnSeedStepAndElementButNotOnTheCut) {
  const auto run = [](std::uint64_t seed, std::int64_t step, std::int64_t cut, int threads) {
    const Context context = testing::context(threads);
    UpdateArgs args = adamw_args(context, 40003, DType::bf16, DType::f32);
    args.master = {};
    for (const auto& [begin, end] : {std::pair{std::int64_t{0}, cut}, {cut, std::int64_t{40003}}}) {
      UpdateArgs part = args;
      for (Tensor* tensor : {&part.parameter, &part.gradient, &part.state[0], &part.state[1]})
        *tensor = tensor->slice(0, begin, end);
      part.step = step_of(context, step, 1e-4, 0.5);
      part.stochastic_rounding = true;
      part.seed = seed;
      part.first = begin;
      update(part);
    }
    return args.parameter;
  };
  const Tensor one = run(1, 3, 40003, 1);
  EXPECT_TRUE(same_bits(one, run(1, 3, 12347, 2)));
  EXPECT_FALSE(same_bits(one, run(2, 3, 40003, 1)));
  EXPECT_FALSE(same_bits(one, run(1, 4, 40003, 1)));
}

TEST(Sgd, FollowsADoubleReferenceWithAndWithoutMomentum) {
  const Context context = testing::context();
  struct Setting {
    double momentum, dampening;
    bool nesterov;
  };
  for (const auto& [parameter, gradient] : kPairs)
    for (const auto& [momentum, dampening, nesterov] :
         {Setting{0, 0, false}, Setting{0.9, 0, false}, Setting{0.9, 0.3, false}, Setting{0.8, 0, true}}) {
      UpdateArgs args = sgd_args(context, 777, parameter, gradient);
      args.settings = SgdSettings{.momentum = momentum, .dampening = dampening, .nesterov = nesterov};
      if (momentum != 0)  // its first contents are never read
        args.state[0] = tensor_of(context, std::vector<double>(777, std::nan("")), {777}, state_dtype(parameter));
      std::vector<double> p = doubles(args.parameter), buffer(p.size());
      const double lr = 0.1, scale = 0.25;
      for (std::int64_t step = 1; step <= 5; ++step) {
        args.step = step_of(context, step, lr, scale);
        turn_gradient(args.gradient, step);
        const std::vector<double> g = doubles(args.gradient);
        for (std::size_t i = 0; i < p.size(); ++i) {
          const double slope = g[i] * scale + args.range.weight_decay * p[i];
          buffer[i] = step == 1 ? slope : momentum * buffer[i] + (1 - dampening) * slope;
          p[i] -= lr * (momentum == 0 ? slope : nesterov ? slope + momentum * buffer[i] : buffer[i]);
        }
        update(args);
      }
      const double allowed = parameter == DType::f64 ? 1e-13 : 1e-6;
      EXPECT_LT(relative_error(doubles(args.master.defined() ? args.master : args.parameter), p), allowed)
          << parameter << momentum;
      if (args.master.defined()) expect_rounded_master(args.parameter, args.master);
    }
}

TEST(Updates, GiveTheSameBitsAtOneAndTwoThreadsAndOnASplitRange) {
  const auto run = [](int threads, std::int64_t cut) {
    const Context context = testing::context(threads);
    UpdateArgs args = adamw_args(context, 50021, DType::bf16, DType::bf16);
    for (const auto& [begin, end] : {std::pair{std::int64_t{0}, cut}, {cut, std::int64_t{50021}}}) {
      UpdateArgs part = args;
      for (Tensor* tensor : {&part.parameter, &part.master, &part.gradient, &part.state[0], &part.state[1]})
        *tensor = tensor->slice(0, begin, end);
      part.step = step_of(context, 3, 0.01, 0.5);
      update(part);
    }
    return args;
  };
  const UpdateArgs one = run(1, 50021), two = run(2, 50021), split = run(2, 12347);
  for (const UpdateArgs& other : {two, split}) {
    EXPECT_TRUE(same_bits(one.parameter, other.parameter) && same_bits(one.master, other.master));
    EXPECT_TRUE(same_bits(one.state[0], other.state[0]) && same_bits(one.state[1], other.state[1]));
  }
}

TEST(Updates, ChangeNothingInAStepThatIsNotTaken) {
  const Context context = testing::context();
  for (const auto& [parameter, gradient] : kPairs) {
    UpdateArgs args = adamw_args(context, 100, parameter, gradient);
    UpdateArgs plain = sgd_args(context, 100, parameter, gradient);
    const std::vector<double> before = doubles(args.parameter);
    args.step = plain.step = kernels::make_step_state(context, {.steps = 1, .taken = 0, .lr = 1});
    update(args);
    update(plain);
    EXPECT_EQ(doubles(args.parameter), before);
    EXPECT_EQ(doubles(args.state[0]), std::vector<double>(100));
    EXPECT_EQ(doubles(plain.parameter), before);
  }
}

TEST(Updates, WholePowersEqualThoseOfTheLibrary) {
  for (const double base : {0.9, 0.999, 0.5, 0.0})
    for (const std::int64_t n : {0, 1, 2, 3, 10, 1000, 100000})
      EXPECT_NEAR(whole_power(base, n), std::pow(base, static_cast<double>(n)),
                  1e-11 * std::pow(base, static_cast<double>(n)));
}

TEST(Updates, CountAsWritesOfWhatTheyChange) {
  const Context context = testing::context();
  UpdateArgs args = adamw_args(context, 4, DType::bf16, DType::bf16);
  args.step = step_of(context, 1, 0.01, 0.5);
  const std::uint64_t gradient = args.gradient.storage()->version();
  update(args);
  for (const Tensor& written : {args.parameter, args.master, args.state[0], args.state[1]})
    EXPECT_GT(written.storage()->version(), 0u);
  EXPECT_EQ(args.gradient.storage()->version(), gradient);
}

TEST(SumOfSquares, IsExactInDoubleForEveryDtypeAndSize) {
  const Context context = testing::context();
  for (const DType dtype : kFloats)
    for (const std::int64_t count : {0, 1, 7, 1023, 16384, 100003}) {
      const Tensor x = uniform_tensor(context, {count}, 3, dtype, -100, 100);
      double expected = 0;
      for (const double value : doubles(x)) expected += value * value;
      EXPECT_NEAR(sum_of_squares(x), expected, 1e-12 * expected) << dtype << count;
    }
}

TEST(SumOfSquares, DoesNotOverflowWhereFp32Would) {
  const Context context = testing::context();
  const Tensor x = tensor_of(context, {1e30, -1e30, 3e38}, {3});
  EXPECT_NEAR(sum_of_squares(x) / 9e76, 1, 1e-6);
}

TEST(SumOfSquares, GivesTheSameBitsAtOneAndTwoThreads) {
  for (const DType dtype : kFloats) {
    const auto run = [&](int threads) {
      return sum_of_squares(uniform_tensor(testing::context(threads), {200003}, 4, dtype));
    };
    EXPECT_EQ(run(1), run(2));
  }
}

TEST(AllFinite, FindsOneBadElementAnywhere) {
  const Context context = testing::context();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : kFloats) {
    const double largest = dtype == DType::f16 ? 65504 : 3e38;
    EXPECT_TRUE(all_finite(tensor_of(context, {largest, -largest, 0, -0.0, 1e-7}, {5}, dtype)));
    EXPECT_TRUE(all_finite(empty(context, {0}, dtype)));
    for (const double bad : {infinity, -infinity, std::nan("")})
      for (const std::size_t at : {0, 17, 16384, 33332}) {
        std::vector<double> values(33333, 0.5);
        values[at] = bad;
        EXPECT_FALSE(all_finite(tensor_of(context, values, {33333}, dtype))) << dtype << bad << at;
      }
  }
}

TEST(AllFinite, ReadsAStridedView) {
  const Context context = testing::context();
  const Tensor x = tensor_of(context, {1, 2, std::nan(""), 4, 5, 6}, {2, 3});
  EXPECT_TRUE(all_finite(x.slice(1, 0, 2)));
  EXPECT_FALSE(all_finite(x.slice(1, 1, 3)));
  EXPECT_EQ(sum_of_squares(x.slice(1, 0, 2)), 1 + 4 + 16 + 25);
}

TEST(Updates, RefuseTensorsThatDoNotBelongTogether) {
  const Context context = testing::context();
  UpdateArgs args = adamw_args(context, 6, DType::bf16, DType::bf16);
  EXPECT_EQ(error_of([&] { update(args); }), "adam: step state is an empty tensor handle");
  const Tensor step = step_of(context, 1, 0.01, 0.5);
  args.step = step;
  UpdateArgs wrong = args;
  wrong.master = Tensor();
  EXPECT_EQ(error_of([&] { update(wrong); }), "adam: master is an empty tensor handle");
  wrong = args;
  wrong.gradient = zeros(context, {6}, DType::f16);
  EXPECT_EQ(error_of([&] { update(wrong); }),
            "adam: gradient must be bf16 with the 6 elements of the parameter, got f16 (6) on cpu");
  wrong = args;
  wrong.state[1] = zeros(context, {5});
  EXPECT_EQ(error_of([&] { update(wrong); }),
            "adam: v must be f32 with the 6 elements of the parameter, got f32 (5) on cpu");
  wrong = args;
  wrong.settings = AdamSettings{.beta1 = 0.9, .beta2 = 1};
  EXPECT_EQ(error_of([&] { update(wrong); }), "adam: betas must be in [0, 1), got 0.9 and 1");
  wrong = adamw_args(context, 6, DType::f32, DType::f32);
  wrong.step = step;
  wrong.master = zeros(context, {6});
  EXPECT_EQ(error_of([&] { update(wrong); }),
            "adam: a parameter in f32 is its own master copy, but one was given: f32 (6) on cpu");
  UpdateArgs momentum = sgd_args(context, 6, DType::f32, DType::f32);
  momentum.step = step;
  momentum.settings = SgdSettings{.nesterov = true};
  EXPECT_EQ(error_of([&] { update(momentum); }),
            "sgd: nesterov needs a momentum above 0 and no dampening, got 0 and 0");
  momentum.settings = SgdSettings{.momentum = 0.9, .nesterov = true};
  EXPECT_EQ(error_of([&] { update(momentum); }), "sgd: momentum is an empty tensor handle");
  EXPECT_EQ(error_of([&] { sum_of_squares(zeros(context, {2}, DType::i64)); }),
            "sum_of_squares: x must be floating-point, got i64 (2) on cpu");
}

}  // namespace
}  // namespace keel
