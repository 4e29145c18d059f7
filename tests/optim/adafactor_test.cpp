// Adafactor on matrices: what it keeps, and its formula where a matrix is updated in several blocks.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/step_state.h"
#include "keel/optim/elementwise.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::relative_error;
using testing::tensor_of;
using testing::uniform_tensor;

constexpr double kRate = 0.02, kDecay = 0.1, kMean = 0.9;

std::unique_ptr<Optimizer> adafactor(double beta1 = kMean) {
  return make_elementwise(
      "Adafactor", {.settings = AdafactorSettings{.beta1 = beta1, .relative_step = false}, .weight_decay = kDecay});
}

// One matrix, of which this rank has everything.
struct Matrix {
  ParameterRange range;
  std::unique_ptr<Optimizer> optimizer = adafactor();

  Matrix(const Context& context, const Dims& shape, DType dtype) {
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    range.parameter = uniform_tensor(context, {product(shape)}, 1, dtype);
    if (dtype != wide) range.master = tensor_of(context, doubles(range.parameter), {product(shape)});
    range.shape = shape;
    range.state.push_back(zeros(context, {product(shape)}, wide));
    for (const StateKind& kind : optimizer->parameter_state(shape, {}))
      range.state.push_back(zeros(context, {product(*kind.shape)}, wide));
    for (int pass = 0; pass < optimizer->requirements().passes; ++pass)
      range.sums.push_back(zeros(context, {optimizer->sum_count(pass, shape)}, DType::f64));
    range.measured = range.sums;
  }
  void step(const Tensor& gradient, std::int64_t steps) {
    range.gradient = gradient;
    const std::span<const ParameterRange> ranges(&range, 1);
    const StepInput input{
        kernels::make_step_state(gradient.context(), {.steps = steps, .taken = 1, .lr = kRate, .gradient_scale = 0.5})};
    for (int pass = 0; pass < optimizer->requirements().passes; ++pass) {
      optimizer->measure(pass, ranges, input);
      optimizer->settle(pass, ranges, input);
    }
    optimizer->update(ranges, input);
  }
};

double rms(const std::vector<double>& x) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  return std::sqrt(squares / static_cast<double>(x.size()));
}

TEST(Adafactor, KeepsRowsAndColumnsOfMatricesAndEachElementOfVectors) {
  const auto names = [](const std::vector<StateKind>& kinds) {
    std::vector<std::string_view> all;
    for (const StateKind& kind : kinds) all.push_back(kind.name);
    return all;
  };
  const std::vector<StateKind> matrix = adafactor()->parameter_state({2, 3, 7, 5}, {}),
                               vector = adafactor()->parameter_state({7}, {});
  EXPECT_EQ(names(matrix), (std::vector<std::string_view>{"v_rows", "v_columns"}));
  EXPECT_EQ(*matrix[0].shape, (Dims{6, 7}));
  EXPECT_EQ(*matrix[1].shape, (Dims{6, 5}));
  EXPECT_EQ(names(vector), std::vector<std::string_view>{"v"});
  EXPECT_FALSE(vector[0].shape.has_value());
  EXPECT_EQ(adafactor()->state_names(), std::vector<std::string_view>{"m"});
  EXPECT_TRUE(adafactor(0)->state_names().empty());
}

TEST(Adafactor, FollowsTheFormulaAcrossBlocks) {
  const Context context = testing::context(2);
  constexpr std::size_t kRows = 1030, kColumns = 1025;  // a little more than a block of 2^20
  const Dims shape = {kRows, kColumns};
  Matrix matrix(context, shape, DType::f32);
  std::vector<double> p = doubles(matrix.range.parameter), m(p.size()), rows(kRows), columns(kColumns), u(p.size());
  for (std::int64_t step = 1; step <= 3; ++step) {
    const Tensor gradient = uniform_tensor(context, {product(shape)}, 10 + static_cast<std::uint64_t>(step));
    const std::vector<double> g = doubles(gradient);
    matrix.step(gradient, step);
    const double keep = 1 - std::pow(static_cast<double>(step), -0.8), rate = kRate * rms(p);
    for (double& row : rows) row *= keep;
    for (double& column : columns) column *= keep;
    for (std::size_t i = 0; i < p.size(); ++i) {
      rows[i / kColumns] += (1 - keep) * 0.25 * g[i] * g[i] / kColumns;
      columns[i % kColumns] += (1 - keep) * 0.25 * g[i] * g[i] / kRows;
    }
    double mean = 0;
    for (const double row : rows) mean += row / kRows;
    for (std::size_t i = 0; i < p.size(); ++i)
      u[i] = 0.5 * g[i] / std::sqrt(rows[i / kColumns] / mean * columns[i % kColumns]);
    const double clip = std::max(1.0, rms(u));
    for (std::size_t i = 0; i < p.size(); ++i) {
      m[i] = kMean * m[i] + (1 - kMean) * rate * u[i] / clip;
      p[i] = p[i] * (1 - kDecay * rate) - m[i];
    }
  }
  EXPECT_LT(relative_error(doubles(matrix.range.parameter), p), 1e-6);
  EXPECT_LT(relative_error(doubles(matrix.range.state[0]), m), 1e-6);
}

// As gradients of which the largest alone were sent: rows and columns without any stand beside others.
TEST(Adafactor, MovesWhereThereIsAGradientAndStaysFiniteElsewhere) {
  const Context context = testing::context(1);
  const Dims shape = {6, 5};
  Matrix matrix(context, shape, DType::f32);
  const std::vector<double> before = doubles(matrix.range.parameter);
  std::vector<double> g(before.size(), 0);
  g[7] = 0.3;
  g[9] = -2;
  for (std::int64_t step = 1; step <= 3; ++step) matrix.step(tensor_of(context, g, {30}), step);
  const std::vector<double> after = doubles(matrix.range.parameter);
  const double decayed = after[0] / before[0];
  for (std::size_t i = 0; i < g.size(); ++i) {
    if (g[i] == 0) EXPECT_NEAR(after[i], before[i] * decayed, 1e-6) << i;
    else EXPECT_LT((after[i] - before[i] * decayed) * g[i], -1e-4) << i;
  }
}

TEST(Adafactor, OfAVectorFollowsTheFormulaWithAndWithoutAMean) {
  const Context context = testing::context(1);
  for (const double mean : {0.0, kMean}) {
    const auto optimizer = adafactor(mean);
    constexpr std::size_t kCount = 7;
    ParameterRange range;
    range.parameter = uniform_tensor(context, {kCount}, 1);
    range.shape = {kCount};
    if (mean > 0) range.state.push_back(zeros(context, {kCount}));
    range.state.push_back(zeros(context, {kCount}));
    for (int pass = 0; pass < 2; ++pass)
      range.sums.push_back(zeros(context, {optimizer->sum_count(pass, range.shape)}, DType::f64));
    range.measured = range.sums;
    std::vector<double> p = doubles(range.parameter), m(kCount), v(kCount), u(kCount);
    for (std::int64_t step = 1; step <= 4; ++step) {
      range.gradient = uniform_tensor(context, {kCount}, 10 + static_cast<std::uint64_t>(step));
      const std::span<const ParameterRange> ranges(&range, 1);
      const StepInput input{kernels::make_step_state(context, {.steps = step, .taken = 1, .lr = kRate})};
      for (int pass = 0; pass < 2; ++pass) optimizer->measure(pass, ranges, input);
      optimizer->update(ranges, input);
      const std::vector<double> g = doubles(range.gradient);
      const double keep = 1 - std::pow(static_cast<double>(step), -0.8), rate = kRate * rms(p);
      for (std::size_t i = 0; i < kCount; ++i) {
        v[i] = keep * v[i] + (1 - keep) * g[i] * g[i];
        u[i] = g[i] / std::sqrt(v[i]);
      }
      const double clip = std::max(1.0, rms(u));
      for (std::size_t i = 0; i < kCount; ++i) {
        m[i] = mean * m[i] + (1 - mean) * rate * u[i] / clip;
        p[i] = p[i] * (1 - kDecay * rate) - m[i];
      }
    }
    EXPECT_LT(relative_error(doubles(range.parameter), p), 1e-6) << mean;
    EXPECT_LT(relative_error(doubles(range.state.back()), v), 1e-6) << mean;
  }
}

// Two blocks of 2^20, as a whole and in ranges that are cut elsewhere.
TEST(Adafactor, RoundsAtRandomToTheSameBitsHoweverAMatrixIsCut) {
  const Context context = testing::context(2);
  const auto optimizer = make_elementwise(
      "Adafactor", {.settings = AdafactorSettings{.relative_step = false}, .stochastic_rounding = true, .seed = 5});
  EXPECT_FALSE(optimizer->requirements().master);
  EXPECT_TRUE(adafactor()->requirements().master);
  const auto train = [&](const Dims& shape, const std::vector<std::int64_t>& cuts) {
    const std::int64_t count = product(shape);
    const Tensor gradient = uniform_tensor(context, {count}, 2);
    const Tensor parameter = uniform_tensor(context, {count}, 1, DType::bf16);
    ParameterRange whole;
    whole.shape = shape;
    for (const StateKind& kind : optimizer->parameter_state(shape, {}))
      whole.state.push_back(kernels::full(context, {product(*kind.shape)}, 0));
    for (int pass = 0; pass < 2; ++pass)
      whole.sums.push_back(kernels::full(context, {optimizer->sum_count(pass, shape)}, 1, DType::f64));
    std::vector<ParameterRange> ranges;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      ranges.push_back(whole);
      ranges.back().parameter = parameter.slice(0, cuts[i], cuts[i + 1]);
      ranges.back().gradient = gradient.slice(0, cuts[i], cuts[i + 1]);
      ranges.back().begin = cuts[i];
      ranges.back().first = 100 + cuts[i];
    }
    optimizer->update(ranges, {kernels::make_step_state(context, {.steps = 1, .taken = 1, .lr = 1e-3})});
    return doubles(parameter);
  };
  constexpr std::int64_t kBlock = 1 << 20;
  EXPECT_EQ(train({1024, 2048}, {0, 2 * kBlock}), train({1024, 2048}, {0, 1'500'000, 2 * kBlock}));
  // The second block is one element.
  EXPECT_EQ(train({17, 61681}, {0, kBlock + 1}), train({17, 61681}, {0, 1000, kBlock + 1}));
}

TEST(Adafactor, MastersOfBf16FollowFp32) {
  const Context context = testing::context(1);
  for (const Dims& shape : {Dims{37, 21}, Dims{2, 5, 9}}) {
    Matrix narrow(context, shape, DType::bf16), wide(context, shape, DType::f32);
    kernels::copy_into(wide.range.parameter, narrow.range.master);
    for (std::int64_t step = 1; step <= 20; ++step) {
      const Tensor gradient = uniform_tensor(context, {product(shape)}, 10 + static_cast<std::uint64_t>(step));
      narrow.step(gradient, step);
      wide.step(gradient, step);
    }
    EXPECT_EQ(doubles(narrow.range.master), doubles(wide.range.parameter));
    EXPECT_EQ(doubles(narrow.range.parameter), doubles(kernels::cast(wide.range.parameter, DType::bf16)));
  }
}

}  // namespace
}  // namespace keel
