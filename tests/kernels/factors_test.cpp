// Mean squares of matrices by their rows and columns.

#include "keel/kernels/factors.h"

#include <gtest/gtest.h>

#include <cmath>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/step_state.h"
#include "tests/kernels/row_support.h"

namespace keel {
namespace {

using namespace keel::testing;

const Dims kFactoredShapes[] = {{7, 5}, {1, 9}, {9, 1}, {2, 3, 4}, {2, 2, 3, 5}, {700, 41}, {3, 2000}};

Tensor taken_step(const Context& context, std::int64_t steps = 3) {
  return kernels::make_step_state(context, {.steps = steps, .taken = 1, .lr = 0.1, .gradient_scale = 0.5});
}

std::vector<double> sums_of(const Tensor& gradient, std::int64_t begin, const Factored& shape) {
  const Tensor sums = kernels::full(gradient.context(), {shape.count()}, NAN, DType::f64);
  kernels::sum_factors(gradient, begin, shape, taken_step(gradient.context()), sums);
  return doubles(sums);
}

TEST(Factors, AreSumsOverRowsAndColumns) {
  const Context context = testing::context(2);
  for (const Dims& dims : kFactoredShapes)
    for (const DType dtype : kFloats) {
      const Factored shape = Factored::of(dims);
      const Tensor gradient = uniform_tensor(context, {product(dims)}, 3, dtype);
      const std::vector<double> g = doubles(gradient), sums = sums_of(gradient, 0, shape);
      std::vector<double> expected(sums.size(), 0);
      for (std::int64_t i = 0; i < gradient.numel(); ++i) {
        const std::int64_t row = i / shape.columns, matrix = row / shape.rows * (shape.rows + shape.columns);
        const double square = 0.25 * g[static_cast<std::size_t>(i)] * g[static_cast<std::size_t>(i)];
        expected[static_cast<std::size_t>(matrix + row % shape.rows)] += square;
        expected[static_cast<std::size_t>(matrix + shape.rows + i % shape.columns)] += square;
      }
      EXPECT_LT(relative_error(sums, expected), 1e-12) << dims << ' ' << dtype;
    }
}

TEST(Factors, OfPartsAddUpAndDoNotDependOnThreads) {
  const Context one = testing::context(1), two = testing::context(2);
  for (const Dims& dims : kFactoredShapes) {
    const Factored shape = Factored::of(dims);
    const Tensor gradient = uniform_tensor(one, {product(dims)}, 3);
    const std::vector<double> whole = sums_of(gradient, 0, shape);
    EXPECT_EQ(sums_of(uniform_tensor(two, {product(dims)}, 3), 0, shape), whole) << dims;
    std::vector<double> added(whole.size(), 0);
    const std::int64_t cuts[] = {0, 1, 4, gradient.numel() / 2 + 3, gradient.numel()};
    for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) {
      const std::vector<double> part = sums_of(gradient.slice(0, cuts[i], cuts[i + 1]), cuts[i], shape);
      for (std::size_t at = 0; at < part.size(); ++at) added[at] += part[at];
    }
    EXPECT_LT(relative_error(added, whole), 1e-12) << dims;
  }
}

// The averages and then the factors, by the formula.
TEST(Factors, GiveRootsOfMeanSquaresWhoseRowsHaveTheirMeans) {
  const Context context = testing::context(1);
  const AdafactorSettings settings{.eps_gradient = 1e-3};
  for (const Dims& dims : kFactoredShapes)
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Factored shape = Factored::of(dims);
      const SettleArgs args{.shape = shape,
                            .rows = uniform_tensor(context, {shape.batch * shape.rows}, 1, dtype, 0, 1),
                            .columns = uniform_tensor(context, {shape.batch * shape.columns}, 2, dtype, 0, 1),
                            .sums = uniform_tensor(context, {shape.count()}, 3, DType::f64, 0, 9),
                            .step = taken_step(context),
                            .settings = settings};
      const std::vector<double> rows = doubles(args.rows), columns = doubles(args.columns), sums = doubles(args.sums);
      kernels::settle_factors(args);
      const double keep = 1 - std::pow(3.0, -0.8);
      const auto settled = [&](double average, double sum, std::int64_t count) {
        return keep * average + (1 - keep) * (sum / static_cast<double>(count) + 1e-3);
      };
      std::vector<double> new_rows, new_columns, roots;
      for (std::int64_t b = 0; b < shape.batch; ++b) {
        double mean = 0;
        for (std::int64_t i = 0; i < shape.rows; ++i) {
          const auto at = static_cast<std::size_t>(b * shape.rows + i);
          new_rows.push_back(
              settled(rows[at], sums[static_cast<std::size_t>(b * (shape.rows + shape.columns) + i)], shape.columns));
          mean += new_rows.back() / static_cast<double>(shape.rows);
        }
        for (std::int64_t j = 0; j < shape.columns; ++j) {
          const auto at = static_cast<std::size_t>(b * (shape.rows + shape.columns) + shape.rows + j);
          new_columns.push_back(
              settled(columns[static_cast<std::size_t>(b * shape.columns + j)], sums[at], shape.rows));
        }
        for (std::int64_t i = 0; i < shape.rows; ++i)
          for (std::int64_t j = 0; j < shape.columns; ++j)
            roots.push_back(std::sqrt(new_rows[static_cast<std::size_t>(b * shape.rows + i)] / mean *
                                      new_columns[static_cast<std::size_t>(b * shape.columns + j)]));
      }
      const double bound = dtype == DType::f64 ? 1e-13 : 3e-7;
      EXPECT_LT(relative_error(doubles(args.rows), new_rows), bound) << dims;
      EXPECT_LT(relative_error(doubles(args.columns), new_columns), bound) << dims;
      const Tensor whole = empty(context, {product(dims)}, dtype);
      kernels::expand_factors(args.sums, shape, 0, whole);
      EXPECT_LT(relative_error(doubles(whole), roots), bound) << dims;
      const Tensor part = empty(context, {product(dims) - 3}, dtype);
      kernels::expand_factors(args.sums, shape, 2, part);
      EXPECT_TRUE(same_bits(part, whole.slice(0, 2, product(dims) - 1))) << dims;
    }
}

// A row and a column without gradients beside large ones, and squares that fp32 cannot hold.
TEST(Factors, AreNumbersAboveZeroHoweverFarApartTheyAre) {
  const Context context = testing::context(1);
  for (const double large : {1e-3, 1e4, 1e30}) {
    const Factored shape = Factored::of({2, 2});
    const Tensor gradient = tensor_of(context, {large, 0, 0, 0}, {4}), root = empty(context, {4});
    const SettleArgs args{.shape = shape,
                          .rows = zeros(context, {2}),
                          .columns = zeros(context, {2}),
                          .sums = zeros(context, {4}, DType::f64),
                          .step = taken_step(context, 1),
                          .settings = {}};
    kernels::sum_factors(gradient, 0, shape, args.step, args.sums);
    kernels::settle_factors(args);
    kernels::expand_factors(args.sums, shape, 0, root);
    for (const double each : doubles(root)) EXPECT_TRUE(each > 0 && std::isfinite(each)) << each << " for " << large;
  }
}

TEST(Factors, ChangeNothingInAStepThatIsNotTaken) {
  const Context context = testing::context(1);
  const Factored shape = Factored::of({7, 5});
  const Tensor step = kernels::make_step_state(context, {.steps = 3, .taken = 0});
  const SettleArgs args{.shape = shape,
                        .rows = uniform_tensor(context, {7}, 1),
                        .columns = uniform_tensor(context, {5}, 2),
                        .sums = uniform_tensor(context, {12}, 3, DType::f64),
                        .step = step,
                        .settings = {}};
  const std::vector<double> rows = doubles(args.rows), columns = doubles(args.columns), sums = doubles(args.sums);
  kernels::sum_factors(uniform_tensor(context, {35}, 4), 0, shape, step, args.sums);
  kernels::settle_factors(args);
  EXPECT_EQ(doubles(args.rows), rows);
  EXPECT_EQ(doubles(args.columns), columns);
  EXPECT_EQ(doubles(args.sums), sums);
}

TEST(Factors, RefuseWhatDoesNotFit) {
  const Context context = testing::context(1);
  const Tensor gradient = zeros(context, {35}), sums = zeros(context, {12}, DType::f64), step = taken_step(context);
  EXPECT_EQ(error_of([] { Factored::of({7}); }),
            "only tensors of two dimensions or more have rows and columns, got (7)");
  EXPECT_EQ(error_of([&] {
              kernels::sum_factors(gradient, 1, Factored::of({7, 5}), step, sums);
            }),
            "sum_factors: a part begins at 1 and has 35 elements, of the parameter's 35");
  EXPECT_NE(error_of([&] {
              kernels::sum_factors(gradient, 0, Factored::of({5, 7, 1}), step, sums);
            }).find("sums of rows and columns must be f64 (40)"),
            std::string::npos);
}

}  // namespace
}  // namespace keel
