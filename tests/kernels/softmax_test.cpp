#include "keel/kernels/softmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/row_support.h"

namespace keel {
namespace {

using namespace keel::testing;
using kernels::log_softmax;
using kernels::log_softmax_backward;
using kernels::softmax;
using kernels::softmax_backward;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> softmax_reference(const std::vector<double>& x, std::int64_t cols, bool log) {
  std::vector<double> out(x.size());
  const auto width = static_cast<std::size_t>(cols);
  for (std::size_t row = 0; row < x.size(); row += width) {
    double sum = 0;
    for (std::size_t j = row; j < row + width; ++j) sum += std::exp(x[j]);
    for (std::size_t j = row; j < row + width; ++j) out[j] = log ? x[j] - std::log(sum) : std::exp(x[j]) / sum;
  }
  return out;
}

// For y = softmax(x): sum_k g_k y_k (1[k = j] - y_j); for log: g_j - exp(y_j) sum(g).
std::vector<double> softmax_gradient(const std::vector<double>& g, const std::vector<double>& y, std::int64_t cols,
                                     bool log) {
  std::vector<double> out(g.size());
  const auto width = static_cast<std::size_t>(cols);
  for (std::size_t row = 0; row < g.size(); row += width)
    for (std::size_t j = row; j < row + width; ++j) {
      out[j] = log ? g[j] : 0;
      for (std::size_t k = row; k < row + width; ++k)
        out[j] += log ? -std::exp(y[j]) * g[k] : g[k] * y[k] * ((k == j) - y[j]);
    }
  return out;
}

const Dims kSoftmaxShapes[] = {{1, 1}, {3, 7}, {2, 3, 65}, {11, 64}, {2, 2049}, {1, 5003}, {257, 31}};

TEST(Softmax, EqualsADoubleReferenceForEveryDtypeAndSize) {
  const Context context = testing::context();
  for (const DType dtype : kFloats)
    for (const Dims& shape : kSoftmaxShapes) {
      const Tensor x = uniform_tensor(context, shape, 1, dtype, -4, 4);
      const std::int64_t cols = shape.back();
      EXPECT_LT(relative_error(doubles(softmax(x)), softmax_reference(doubles(x), cols, false)), tolerance(dtype))
          << dtype << shape;
      EXPECT_LT(relative_error(doubles(log_softmax(x)), softmax_reference(doubles(x), cols, true)), tolerance(dtype))
          << dtype << shape;
    }
}

TEST(Softmax, BackwardEqualsADoubleReferenceForEveryDtypeAndSize) {
  const Context context = testing::context();
  for (const DType dtype : kFloats)
    for (const Dims& shape : {Dims{3, 7}, Dims{2, 3, 65}, Dims{5, 257}}) {
      const Tensor x = uniform_tensor(context, shape, 2, dtype, -2, 2), g = uniform_tensor(context, shape, 3, dtype);
      const Tensor y = softmax(x), log_y = log_softmax(x);
      const std::int64_t cols = shape.back();
      EXPECT_LT(relative_error(doubles(softmax_backward(g, y)), softmax_gradient(doubles(g), doubles(y), cols, false)),
                tolerance(dtype))
          << dtype << shape;
      EXPECT_LT(relative_error(doubles(log_softmax_backward(g, log_y)),
                               softmax_gradient(doubles(g), doubles(log_y), cols, true)),
                tolerance(dtype))
          << dtype << shape;
    }
}

TEST(Softmax, BackwardEqualsCentralDifferences) {
  const Context context = testing::context();
  const Tensor x = uniform_tensor(context, {3, 5}, 4, DType::f64), g = uniform_tensor(context, {3, 5}, 5, DType::f64);
  EXPECT_LT(relative_error(doubles(softmax_backward(g, softmax(x))),
                           central_differences(x, [&] { return dot(doubles(softmax(x)), doubles(g)); })),
            1e-8);
  EXPECT_LT(relative_error(doubles(log_softmax_backward(g, log_softmax(x))),
                           central_differences(x, [&] { return dot(doubles(log_softmax(x)), doubles(g)); })),
            1e-8);
}

TEST(Softmax, RowsSumToOneAndAShiftChangesNothing) {
  const Context context = testing::context();
  const std::vector<double> values = uniform(7 * 4099, 6, -8, 8);
  std::vector<double> shifted = values;
  for (double& value : shifted) value += 700;  // exp(700 + 8) overflows fp32 by far
  const Tensor y = softmax(tensor_of(context, values, {7, 4099}));
  for (std::int64_t row = 0; row < 7; ++row) {
    const std::vector<double> probabilities = doubles(y.select(0, row));
    double sum = 0;
    for (const double p : probabilities) sum += p;
    EXPECT_NEAR(sum, 1, 1e-6);
  }
  const Tensor exact = softmax(tensor_of(context, values, {7, 4099}, DType::f64));
  EXPECT_LT(relative_error(doubles(softmax(tensor_of(context, shifted, {7, 4099}, DType::f64))), doubles(exact)),
            1e-12);
}

TEST(Softmax, AMaximumThatKeepsRisingAcrossBlocksIsExact) {
  const Context context = testing::context();
  std::vector<double> values(9001);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) * 1e-2 - 120;
  const Tensor x = tensor_of(context, values, {1, 9001});
  EXPECT_LT(relative_error(doubles(softmax(x)), softmax_reference(doubles(x), 9001, false)), 1e-6);
  EXPECT_LT(relative_error(doubles(log_softmax(x)), softmax_reference(doubles(x), 9001, true)), 1e-6);
}

TEST(Softmax, MaskedElementsGetNothingAndAFullyMaskedRowIsNan) {
  const Context context = testing::context();
  for (const DType dtype : kFloats) {
    std::vector<double> values(2 * 5000, -kInfinity);
    values[4999] = 1;  // everything before it is masked, whole blocks of it
    const std::vector<double> y = doubles(softmax(tensor_of(context, values, {2, 5000}, dtype)));
    EXPECT_EQ(y[0], 0);
    EXPECT_EQ(y[4999], 1);
    EXPECT_TRUE(std::all_of(y.begin() + 5000, y.end(), [](double p) { return std::isnan(p); })) << dtype;
  }
}

TEST(Softmax, NonFiniteInputsStayInTheirRow) {
  const Context context = testing::context();
  for (const double bad : {kInfinity, std::nan("")}) {
    std::vector<double> values(3 * 9, 0.5);
    values[9 + 4] = bad;
    const std::vector<double> y = doubles(softmax(tensor_of(context, values, {3, 9})));
    EXPECT_NEAR(y[0], 1.0 / 9, 1e-7);
    EXPECT_TRUE(std::isnan(y[9 + 4]));
    EXPECT_NEAR(y[26], 1.0 / 9, 1e-7);
  }
}

TEST(Softmax, GivesTheSameBitsAtOneAndTwoThreads) {
  for (const DType dtype : kFloats) {
    const auto run = [&](int threads) {
      const Context context = testing::context(threads);
      const Tensor x = uniform_tensor(context, {501, 131}, 7, dtype), g = uniform_tensor(context, {501, 131}, 8, dtype);
      return softmax_backward(g, softmax(x));
    };
    EXPECT_TRUE(same_bits(run(1), run(2))) << dtype;
  }
}

TEST(Softmax, AcceptsStridedAndEmptyInputs) {
  const Context context = testing::context();
  const Tensor x = uniform_tensor(context, {5, 3}, 9);
  const Tensor turned = x.transpose(0, 1);
  EXPECT_LT(relative_error(doubles(softmax(turned)), softmax_reference(doubles(turned), 5, false)), 1e-6);
  EXPECT_EQ(softmax(empty(context, {0, 4})).shape(), (Dims{0, 4}));
  EXPECT_EQ(softmax(empty(context, {4, 0})).shape(), (Dims{4, 0}));
  EXPECT_EQ(softmax_backward(empty(context, {0, 4}), empty(context, {0, 4})).numel(), 0);
}

TEST(Softmax, RefusesWhatItCannotDo) {
  const Context context = testing::context();
  EXPECT_EQ(error_of([&] {
              softmax(zeros(context, {2, 3}, DType::i64));
            }),
            "softmax: x must be floating-point, got i64 (2, 3) on cpu");
  EXPECT_EQ(error_of([&] { softmax(zeros(context, {})); }),
            "softmax: a tensor with at least one dimension is needed, got f32 () on cpu");
  EXPECT_EQ(error_of([&] {
              softmax_backward(zeros(context, {2, 3}), zeros(context, {2, 4}));
            }),
            "softmax_backward: grad_output must be f32 (2, 4), got f32 (2, 3) on cpu");
  EXPECT_EQ(error_of([&] { log_softmax_backward(zeros(testing::context(), {2}), zeros(context, {2})); }),
            "log_softmax_backward: grad_output f32 (2) on cpu belongs to another context; all tensors of an operation "
            "share one");
  EXPECT_EQ(error_of([&] { log_softmax(Tensor()); }), "log_softmax: x is an empty tensor handle");
}

}  // namespace
}  // namespace keel
