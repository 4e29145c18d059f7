// Muon on ranges of parameters, by its formulas.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/newton_schulz.h"
#include "keel/kernels/step_state.h"
#include "keel/optim/elementwise.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::error_of;
using testing::tensor_of;
using testing::uniform_tensor;

constexpr double kMuonRate = 0.02, kMuonDecay = 0.1;
constexpr std::int64_t kColumns = 4;
// A parameter of two matrices, the upper one wide and the lower one high.
const ParameterGroup kTwoMatrices{.lr_factor = 0.5, .matrices = {2, 9}};
const Dims kShape{11, kColumns};

std::unique_ptr<Optimizer> muon(const ElementwiseOptions& options) { return make_elementwise("Muon", options); }

StepInput step_input(const Context& context, std::int64_t steps = 1) {
  return {kernels::make_step_state(context, {.steps = steps, .taken = 1, .lr = kMuonRate, .gradient_scale = 0.5})};
}

TEST(MuonOfRanges, NeedsMastersUnlessItRoundsAtRandom) {
  EXPECT_EQ(muon({.settings = MuonSettings{}})->requirements(),
            (OptimizerRequirements{.one_by_one = true, .master = true, .matrices = true}));
  EXPECT_EQ(muon({.settings = MuonSettings{}, .stochastic_rounding = true})->requirements(),
            (OptimizerRequirements{.one_by_one = true, .master = false, .matrices = true}));
}

TEST(MuonOfRanges, HasOneKindOfProductsAndOneNumberOfTheirSteps) {
  const auto refusal = [](const MuonSettings& variant) {
    return error_of([&] { muon({.settings = MuonSettings{}, .variants = {variant}}); });
  };
  const std::string same = "Muon: all groups have the same products and newton_schulz_steps";
  EXPECT_EQ(refusal({.momentum = 0.5, .nesterov = false, .scaling = MuonScale::original}), "");
  EXPECT_EQ(refusal({.products = MuonProducts::fp32}), same);
  EXPECT_EQ(refusal({.newton_schulz_steps = 4}), same);
  EXPECT_EQ(refusal({.newton_schulz_steps = 4, .products = MuonProducts::fp32}), same);
}

TEST(MuonOfRanges, TakesTheMatricesThatItsSettingsChoose) {
  using Rows = std::vector<std::int64_t>;
  const auto of = [](MuonMatrices which, const Dims& shape, const Rows& hidden) {
    return muon({.settings = MuonSettings{.matrices = which}})->matrices(shape, {.matrices = hidden});
  };
  EXPECT_EQ(of(MuonMatrices::hidden, {11, 4}, {2, 9}), (Rows{2, 9}));
  EXPECT_EQ(of(MuonMatrices::hidden, {11, 4}, {}), Rows());
  EXPECT_EQ(of(MuonMatrices::all, {11, 4}, {2, 9}), (Rows{2, 9}));
  EXPECT_EQ(of(MuonMatrices::all, {11, 4}, {}), Rows{11});
  for (const MuonMatrices which : {MuonMatrices::hidden, MuonMatrices::all}) {
    EXPECT_EQ(of(which, {11}, {11}), Rows());
    EXPECT_EQ(of(which, {11, 4, 3}, {11}), Rows());
  }
  EXPECT_EQ(of(MuonMatrices::none, {11, 4}, {2, 9}), Rows());
}

TEST(MuonOfRanges, KeepsMomentumOfMatricesAndMomentsOfTheRest) {
  const auto names = [](const ParameterGroup& group) {
    std::vector<std::string_view> all;
    for (const StateKind& kind : muon({.settings = MuonSettings{}})->parameter_state(kShape, group)) {
      EXPECT_TRUE(kind.by_element());
      all.push_back(kind.name);
    }
    return all;
  };
  EXPECT_EQ(names(kTwoMatrices), std::vector<std::string_view>{"momentum"});
  EXPECT_EQ(names({}), (std::vector<std::string_view>{"m", "v"}));
  EXPECT_TRUE(muon({.settings = MuonSettings{}})->state_names().empty());
}

TEST(MuonOfRanges, TransformsMatricesInTheDtypeOfItsProducts) {
  const auto bf16 = muon({.settings = MuonSettings{}}),
             fp32 = muon({.settings = MuonSettings{.products = MuonProducts::fp32}});
  EXPECT_EQ(bf16->matrix_dtype(DType::f32), DType::bf16);
  EXPECT_EQ(fp32->matrix_dtype(DType::f32), DType::f32);
  for (const auto* optimizer : {&bf16, &fp32}) EXPECT_EQ((*optimizer)->matrix_dtype(DType::f64), DType::f64);
}

TEST(MuonOfRanges, CountsTheOperationsOfItsStepsByTheSmallerExtent) {
  for (const int steps : {1, 5}) {
    const auto optimizer = muon({.settings = MuonSettings{.newton_schulz_steps = steps}});
    // A X X' is 3 x 3: 2 * 27 for its square, and two products of 2 * 3 * 3 * 7 each.
    EXPECT_EQ(optimizer->transform_operations(3, 7), steps * (54 + 252));
    EXPECT_EQ(optimizer->transform_operations(7, 3), steps * (54 + 252));
    const Tensor matrix = uniform_tensor(testing::context(1), {3, 7}, 1);
    EXPECT_EQ(doubles(optimizer->transform(matrix)), doubles(kernels::newton_schulz(matrix, steps)));
  }
}

// Some elements of kShape, with all that a step reads and writes.
ParameterRange range_of(const Context& context, std::int64_t begin, std::int64_t end, DType dtype, bool has_master) {
  const auto cut = [&](const Tensor& whole) { return kernels::clone(whole.slice(0, begin, end)); };
  const std::int64_t count = product(kShape);
  ParameterRange range;
  range.parameter = cut(uniform_tensor(context, {count}, 1, dtype));
  range.gradient = cut(uniform_tensor(context, {count}, 2, dtype));
  range.group = kTwoMatrices;
  if (has_master) range.master = tensor_of(context, doubles(range.parameter), {end - begin});
  range.state = {cut(uniform_tensor(context, {count}, 3))};
  range.matrix = cut(uniform_tensor(context, {count}, 4));
  range.shape = kShape;
  range.begin = range.first = begin;
  return range;
}

TEST(MuonOfRanges, UpdatesEachMatrixByTheScaleOfItsShape) {
  const Context context = testing::context(1);
  const MuonSettings as_adamw, original{.scaling = MuonScale::original};
  const auto optimizer = muon({.settings = as_adamw, .variants = {as_adamw, original}, .weight_decay = kMuonDecay});
  const double scales[][2] = {{0.2 * 2, 0.2 * 3}, {0.2 * 2, 0.2 * 3}, {1, 1.5}};
  for (std::size_t variant = 0; variant < 3; ++variant)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const auto& [begin, end] : {std::pair{0, 44}, {3, 20}, {0, 8}, {8, 44}, {9, 10}, {7, 9}}) {
        SCOPED_TRACE(concat("variant ", variant, ", ", dtype, ", elements ", begin, " to ", end));
        ParameterRange range = range_of(context, begin, end, dtype, dtype != DType::f32);
        range.group.variant = variant;
        const std::vector<double> before = doubles(range.parameter), orthogonal = doubles(range.matrix);
        optimizer->update(std::span(&range, 1), step_input(context));
        const Tensor weights = dtype == DType::f32 ? range.parameter : range.master;
        const std::vector<double> after = doubles(weights);
        const double rate = kMuonRate * 0.5;
        for (std::size_t i = 0; i < after.size(); ++i) {
          const double scale = scales[variant][begin + static_cast<int>(i) < 2 * kColumns ? 0 : 1];
          EXPECT_NEAR(after[i], before[i] * (1 - rate * kMuonDecay) - rate * scale * orthogonal[i], 1e-7) << i;
        }
        EXPECT_EQ(doubles(range.parameter), doubles(kernels::cast(weights, dtype)));
        EXPECT_EQ(doubles(range.state[0]), doubles(range_of(context, begin, end, dtype, false).state[0]));
      }
}

TEST(MuonOfRanges, RoundsAtRandomToTheSameBitsHoweverMatricesAreCut) {
  const Context context = testing::context(1);
  const auto optimizer = muon({.settings = MuonSettings{}, .stochastic_rounding = true, .seed = 7});
  const auto updated = [&](const std::vector<std::int64_t>& cuts) {
    std::vector<double> all;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      ParameterRange range = range_of(context, cuts[i], cuts[i + 1], DType::bf16, false);
      range.first += 100;
      optimizer->update(std::span(&range, 1), step_input(context));
      for (const double value : doubles(range.parameter)) all.push_back(value);
    }
    return all;
  };
  const std::vector<double> whole = updated({0, 44});
  EXPECT_EQ(updated({0, 8, 44}), whole);
  EXPECT_EQ(updated({0, 3, 20, 44}), whole);
}

TEST(MuonOfRanges, PreparesMomentumAndLeavesWeightsAlone) {
  const Context context = testing::context(1);
  for (const bool nesterov : {true, false})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const double keep = 0.75;
      const auto optimizer =
          muon({.settings = MuonSettings{.momentum = keep, .nesterov = nesterov}, .weight_decay = kMuonDecay});
      ParameterRange ranges[] = {range_of(context, 3, 20, dtype, dtype != DType::f32),
                                 range_of(context, 0, 3, dtype, dtype != DType::f32)};
      ranges[1].group.matrices.clear();  // no matrix: nothing is prepared of it
      const auto [weights, gradient, buffer] =
          std::tuple(doubles(ranges[0].parameter), doubles(ranges[0].gradient), doubles(ranges[0].state[0]));
      const auto [matrix_of_none, state_of_none] = std::pair(doubles(ranges[1].matrix), doubles(ranges[1].state[0]));
      optimizer->prepare(ranges, step_input(context));
      const std::vector<double> momentum = doubles(ranges[0].state[0]), matrix = doubles(ranges[0].matrix);
      for (std::size_t i = 0; i < momentum.size(); ++i) {
        const double g = 0.5 * gradient[i], kept = keep * buffer[i] + (1 - keep) * g;
        EXPECT_NEAR(momentum[i], kept, 1e-6);
        EXPECT_NEAR(matrix[i], nesterov ? (1 - keep) * g + keep * kept : kept, 1e-6);
      }
      EXPECT_EQ(doubles(ranges[0].parameter), weights);
      if (ranges[0].master.defined()) { EXPECT_EQ(doubles(ranges[0].master), weights); }
      EXPECT_EQ(doubles(ranges[1].matrix), matrix_of_none);
      EXPECT_EQ(doubles(ranges[1].state[0]), state_of_none);
    }
}

TEST(MuonOfRanges, IsAdamWWithARateOfItsOwnForTheRest) {
  const Context context = testing::context(1);
  const MuonSettings settings{.maximize = true, .beta1 = 0.7, .beta2 = 0.8, .epsilon = 1e-3, .adamw_lr_factor = 0.25};
  MuonSettings faster = settings;
  faster.adamw_lr_factor = 2;
  const auto optimizer = muon({.settings = settings, .variants = {faster}, .weight_decay = kMuonDecay});
  const auto adamw = make_elementwise(
      "AdamW",
      {.settings = AdamSettings{.beta1 = 0.7, .beta2 = 0.8, .epsilon = 1e-3, .maximize = true, .decoupled = true},
       .weight_decay = kMuonDecay});
  for (const std::size_t variant : {0, 1}) {
    const auto make = [&](double lr_factor) {
      ParameterRange range = range_of(context, 0, 44, DType::f32, false);
      range.group = {.lr_factor = lr_factor};
      range.state = {zeros(context, {44}), zeros(context, {44})};
      return range;
    };
    ParameterRange mine = make(0.5), theirs = make(0.5 * (variant == 0 ? 0.25 : 2));
    mine.group.variant = variant;
    for (std::int64_t step = 1; step <= 3; ++step) {
      optimizer->update(std::span(&mine, 1), step_input(context, step));
      adamw->update(std::span(&theirs, 1), step_input(context, step));
    }
    EXPECT_EQ(doubles(mine.parameter), doubles(theirs.parameter));
    for (std::size_t kind = 0; kind < 2; ++kind) EXPECT_EQ(doubles(mine.state[kind]), doubles(theirs.state[kind]));
  }
}

}  // namespace
}  // namespace keel
