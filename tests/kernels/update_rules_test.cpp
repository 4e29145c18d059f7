// Laws of all update rules; their formulas are compared with PyTorch in tests/trainer/golden_optimizers_test.cpp.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "tests/kernels/every_rule.h"
#include "tests/kernels/row_support.h"

namespace keel {
namespace {

using namespace keel::testing;

// The numbers of some weights under one rule, through several steps.
class Weights {
 public:
  Weights(const Context& context, const RuleCase& rule, std::int64_t count, DType dtype = DType::f32,
          bool masters = true)
      : rule_(rule), count_(count) {
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    args.parameter = uniform_tensor(context, {count}, 1, dtype);
    if (dtype != wide && masters) args.master = tensor_of(context, doubles(args.parameter), {count});
    args.gradient = empty(context, {count}, DType::f32);
    for (std::size_t i = 0; i < state_names(rule.settings).size(); ++i)
      args.state[i] =
          tensor_of(context, std::vector<double>(static_cast<std::size_t>(count), initial_state(rule.settings, i)),
                    {count}, wide);
    if (const std::vector<double> shared = first_shared(rule.settings); !shared.empty())
      args.shared = tensor_of(context, shared, {static_cast<std::int64_t>(shared.size())}, DType::f64);
    args.settings = rule.settings;
    args.range = {.lr_factor = 0.5, .weight_decay = rule.decay()};
    args.stochastic_rounding = !masters;
  }

  // One step, as updates of the ranges between `cuts`.
  void step(std::int64_t number, const std::vector<std::int64_t>& cuts, bool taken = true) {
    const std::vector<double> gradient = uniform(count_, 100 + static_cast<std::uint64_t>(number));
    const Tensor fresh = tensor_of(args.gradient.context(), gradient, {count_});
    std::memcpy(args.gradient.raw(), fresh.raw(), args.gradient.bytes());
    args.step = kernels::make_step_state(
        args.gradient.context(),
        {.steps = number, .taken = taken ? 1 : 0, .lr = 0.01 / static_cast<double>(number), .gradient_scale = 0.5});
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      UpdateArgs part = args;
      for (Tensor* tensor : {&part.parameter, &part.master, &part.gradient, &part.state[0], &part.state[1],
                             &part.state[2], &part.state[3]})
        if (tensor->defined()) *tensor = tensor->slice(0, cuts[i], cuts[i + 1]);
      part.first = cuts[i];
      kernels::update(part);
    }
    if (shared_number(args.settings) != nullptr)
      kernels::advance_shared({.shared = args.shared, .step = args.step, .settings = args.settings});
  }
  void steps(int count, const std::vector<std::int64_t>& cuts) {
    for (int i = 1; i <= count; ++i) step(i, cuts);
  }

  std::vector<Tensor> all() const {
    std::vector<Tensor> tensors = {args.parameter};
    for (const Tensor* tensor : {&args.master, &args.state[0], &args.state[1], &args.state[2], &args.shared})
      if (tensor->defined()) tensors.push_back(*tensor);
    return tensors;
  }
  std::vector<std::vector<double>> numbers() const {
    std::vector<std::vector<double>> all_numbers;
    for (const Tensor& tensor : all()) all_numbers.push_back(doubles(tensor));
    return all_numbers;
  }

  UpdateArgs args{};

 private:
  RuleCase rule_;
  std::int64_t count_;
};

void expect_same(const Weights& a, const Weights& b, const std::string& what) {
  const std::vector<Tensor> left = a.all(), right = b.all();
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(same_bits(left[i], right[i])) << what << ", tensor " << i;
}

TEST(UpdateRules, AllAreTested) {
  std::set<std::size_t> tested;
  for (const RuleCase& rule : every_rule()) tested.insert(rule.settings.index());
  EXPECT_EQ(tested.size(), std::variant_size_v<UpdateSettings::variant>);
}

TEST(UpdateRules, GiveTheSameBitsHoweverWeightsAreCutAndForAnyNumberOfThreads) {
  constexpr std::int64_t kCount = 17011;
  for (const RuleCase& rule : every_rule())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Weights whole(testing::context(1), rule, kCount, dtype), parts(testing::context(2), rule, kCount, dtype);
      whole.steps(3, {0, kCount});
      parts.steps(3, {0, 1, 1, 6007, kCount, kCount});
      expect_same(whole, parts, rule.name);
    }
}

TEST(UpdateRules, ChangeNothingInAStepThatIsNotTaken) {
  const Context context = testing::context(1);
  for (const RuleCase& rule : every_rule())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
      Weights weights(context, rule, 33, dtype), without(context, rule, 33, dtype);
      weights.step(1, {0, 33});
      const std::vector<std::vector<double>> before = weights.numbers();
      weights.step(1, {0, 33}, false);
      EXPECT_EQ(weights.numbers(), before) << rule.name;
      weights.step(2, {0, 33});
      without.steps(2, {0, 33});
      expect_same(weights, without, rule.name);
    }
}

TEST(UpdateRules, MastersOfBf16FollowFp32WithinTheRoundingOfTheFirstWeights) {
  const Context context = testing::context(1);
  for (const RuleCase& rule : every_rule()) {
    Weights narrow(context, rule, 257, DType::bf16), wide(context, rule, 257);
    std::memcpy(wide.args.parameter.raw(), narrow.args.master.raw(), wide.args.parameter.bytes());
    narrow.steps(20, {0, 257});
    wide.steps(20, {0, 257});
    EXPECT_TRUE(same_bits(narrow.args.master, wide.args.parameter)) << rule.name;
    EXPECT_TRUE(same_bits(narrow.args.parameter, tensor_of(context, doubles(wide.args.parameter), {257}, DType::bf16)))
        << rule.name;
  }
}

TEST(UpdateRules, AgreeInFp32AndFp64) {
  const Context context = testing::context(1);
  for (const RuleCase& rule : every_rule()) {
    Weights single(context, rule, 257), twice(context, rule, 257, DType::f64);
    single.args.parameter = tensor_of(context, doubles(twice.args.parameter), {257});
    twice.args.parameter = tensor_of(context, doubles(single.args.parameter), {257}, DType::f64);
    single.steps(20, {0, 257});
    twice.steps(20, {0, 257});
    EXPECT_LT(relative_error(doubles(single.args.parameter), doubles(twice.args.parameter)), 1e-6) << rule.name;
  }
}

TEST(UpdateRules, LetSmallStepsReachABf16WeightWithoutAMaster) {
  const Context context = testing::context(1);
  for (const RuleCase& rule : every_rule()) {
    Weights rounded(context, rule, 4096, DType::bf16, false), wide(context, rule, 4096);
    wide.args.parameter = tensor_of(context, doubles(rounded.args.parameter), {4096});
    const std::vector<double> start = doubles(wide.args.parameter);
    rounded.steps(10, {0, 4096});
    wide.steps(10, {0, 4096});
    const std::vector<double> a = doubles(rounded.args.parameter), b = doubles(wide.args.parameter);
    double moved = 0, error = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      moved += std::abs(b[i] - start[i]);
      error += a[i] - b[i];
    }
    // Rounding adds nothing on average: some 2^-9 of a weight at random each step, over sqrt(4096 * 10) draws.
    EXPECT_LT(std::abs(error) / 4096, 1e-4 + 0.05 * moved / 4096) << rule.name;
  }
}

TEST(UpdateRules, RefuseWhatMakesNoSense) {
  const Context context = testing::context(1);
  const auto refusal = [&](const UpdateSettings& settings, double decay = 0) {
    Weights weights(context, {"", settings}, 4);
    weights.args.range.weight_decay = decay;
    return error_of([&] { weights.step(1, {0, 4}); });
  };
  EXPECT_EQ(refusal(NAdamSettings{.beta1 = 1}), "nadam: betas must be in [0, 1), got 1 and 0.999");
  EXPECT_EQ(refusal(NAdamSettings{.momentum_decay = -1}), "nadam: momentum_decay must not be negative, got -1");
  EXPECT_EQ(refusal(AdagradSettings{.lr_decay = -1}),
            "adagrad: lr_decay and initial_accumulator must not be negative, got -1 and 0");
  EXPECT_EQ(refusal(AdadeltaSettings{.rho = 2}), "adadelta: rho must be in [0, 1], got 2");
  EXPECT_EQ(refusal(RpropSettings{.shrink = 2}),
            "rprop: etas must be a factor between 0 and 1 and one above 1, got 2 and 1.2");
  EXPECT_EQ(refusal(RpropSettings{}, 0.1), "rprop: has no weight decay, got 0.1");
  EXPECT_EQ(refusal(AsgdSettings{.lambd = -1}), "asgd: lambd must not be negative, got -1");
  Weights shared(context, {"", NAdamSettings{}}, 4);
  shared.args.shared = {};
  EXPECT_EQ(error_of([&] { shared.step(1, {0, 4}); }), "nadam: mu_product is an empty tensor handle");
  EXPECT_EQ(refusal(LambSettings{.min_coeff = 20}), "lamb: min_coeff must be in [0, max_coeff], got 20 and 10");
  EXPECT_EQ(refusal(LarsSettings{.momentum = 0, .nesterov = true}),
            "lars: nesterov needs a momentum above 0 and no dampening, got 0 and 0");
  EXPECT_EQ(refusal(LarsSettings{.trust_coefficient = 0}), "lars: trust_coefficient must be above 0, got 0");
  EXPECT_EQ(refusal(AdafactorSettings{.eps_gradient = 0}),
            "adafactor: epsilons must be one above 0 and one that is not negative, got 0 and 0.001");
  EXPECT_EQ(refusal(AdafactorSettings{.clip_threshold = 0}), "adafactor: clip_threshold must be above 0, got 0");
  EXPECT_EQ(refusal(AdafactorSettings{.decay_rate = 0.8}), "adafactor: decay_rate must not be above 0, got 0.8");
  EXPECT_EQ(refusal(AdafactorSettings{.beta1 = -0.8}), "adafactor: beta1 must be in [0, 1), or none, got -0.8");
  EXPECT_EQ(refusal(AdafactorSettings{.relative_step = false, .warmup_init = true}),
            "adafactor: warmup_init needs relative_step");
  Weights norms(context, {"", LambSettings{}}, 4);
  norms.args.shared = zeros(context, {1}, DType::f64);
  EXPECT_NE(error_of([&] { norms.step(1, {0, 4}); }).find("lamb: squares of norms must be f64 (2)"), std::string::npos);
  Weights many(context, {"", LionSettings{}}, 4);
  many.args.state[1] = zeros(context, {4});
  EXPECT_EQ(error_of([&] { many.step(1, {0, 4}); }), "lion: keeps 1 numbers for each weight, got more");
}

TEST(UpdateRules, RealPowersEqualThoseOfTheLibrary) {
  for (const double base : {0.96, 1.0, 1.0001, 2.0, 3.7, 1e-6, 12345.678, 1e12})
    for (const double exponent : {0.0, 0.004, 0.75, 1.0, -0.5, 2.5, 400.0, -40.0}) {
      const double expected = std::pow(base, exponent);
      if (expected < 1e-300 || expected > 1e300) continue;
      EXPECT_NEAR(real_power(base, exponent) / expected, 1, 1e-13 * (1 + std::abs(std::log(expected)))) << base;
    }
}

}  // namespace
}  // namespace keel
