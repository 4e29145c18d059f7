#include "keel/kernels/loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/row_support.h"

namespace keel {
namespace {

using namespace keel::testing;
using kernels::cross_entropy;
using kernels::CrossEntropyResult;
using kernels::LogitsGradient;

struct Reference {
  double loss = 0;
  std::int64_t count = 0;
  std::vector<double> gradient;
  std::vector<double> magnitude;  // of the two terms whose difference is the gradient
};

Reference cross_entropy_reference(const std::vector<double>& logits, const std::vector<std::int64_t>& targets,
                                  std::int64_t classes, std::int64_t ignore_index, double smoothing) {
  Reference result;
  result.gradient.assign(logits.size(), 0);
  result.magnitude.assign(logits.size(), 0);
  for (const std::int64_t target : targets) result.count += target != ignore_index;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] == ignore_index) continue;
    const std::size_t at = row * static_cast<std::size_t>(classes);
    const double* const x = logits.data() + at;
    double sum = 0;
    for (std::int64_t j = 0; j < classes; ++j) sum += std::exp(x[j]);
    for (std::int64_t j = 0; j < classes; ++j) {
      const double wanted = (j == targets[row] ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
      result.loss += wanted * (std::log(sum) - x[j]);
      const std::size_t i = at + static_cast<std::size_t>(j);
      result.gradient[i] = (std::exp(x[j]) / sum - wanted);
      result.magnitude[i] = std::exp(x[j]) / sum + wanted;
    }
  }
  if (result.count != 0) result.loss /= static_cast<double>(result.count);
  return result;
}

std::vector<std::int64_t> some_targets(std::int64_t rows, std::int64_t classes) {
  std::vector<std::int64_t> targets;
  for (std::int64_t row = 0; row < rows; ++row) targets.push_back(row % 5 == 3 ? -100 : row * 7919 % classes);
  return targets;
}

Tensor as_tensor(const Context& context, const std::vector<std::int64_t>& targets) {
  return from_values(context, targets, {static_cast<std::int64_t>(targets.size())});
}

TEST(CrossEntropy, EqualsADoubleReferenceForEveryDtypeSizeAndSmoothing) {
  const Context context = testing::context();
  for (const DType dtype : kFloats)
    for (const Dims& shape : {Dims{1, 1}, Dims{13, 7}, Dims{301, 65}, Dims{6, 2048}, Dims{5, 5003}})
      for (const double smoothing : {0.0, 0.1, 1.0}) {
        const Tensor logits = uniform_tensor(context, shape, 1, dtype, -5, 5);
        const std::vector<std::int64_t> targets = some_targets(shape[0], shape[1]);
        const CrossEntropyResult result =
            cross_entropy(logits, as_tensor(context, targets), -100, smoothing, LogitsGradient::fresh);
        const Reference expected = cross_entropy_reference(doubles(logits), targets, shape[1], -100, smoothing);
        const double accumulated = dtype == DType::f64 ? 1e-13 : 2e-6;  // the loss is never rounded to a narrow dtype
        EXPECT_EQ(result.count.item(), static_cast<double>(expected.count));
        EXPECT_EQ(result.loss.dtype(), dtype == DType::f64 ? DType::f64 : DType::f32);
        EXPECT_NEAR(result.loss.item(), expected.loss, accumulated * (1 + expected.loss))
            << dtype << shape << smoothing;
        const std::vector<double> gradient = doubles(result.grad_logits);
        const double subnormal = dtype == DType::f16 ? 0x1p-24 : 0;
        for (std::size_t i = 0; i < gradient.size(); ++i)
          ASSERT_NEAR(gradient[i], expected.gradient[i], 2 * tolerance(dtype) * expected.magnitude[i] + subnormal)
              << dtype << shape << smoothing << ' ' << i;
      }
}

TEST(CrossEntropy, GivesALossForEachRowWhoseMeanIsTheLoss) {
  const Context context = testing::context();
  const Tensor logits = uniform_tensor(context, {7, 9}, 11);
  const std::vector<std::int64_t> targets = some_targets(7, 9);
  const CrossEntropyResult result = cross_entropy(logits, as_tensor(context, targets));
  const std::vector<double> losses = doubles(result.losses);
  ASSERT_EQ(losses.size(), 7u);
  double total = 0;
  for (std::int64_t row = 0; row < 7; ++row) {
    const std::vector<std::int64_t> target = {targets[static_cast<std::size_t>(row)]};
    const double alone = cross_entropy(logits.slice(0, row, row + 1), as_tensor(context, target)).loss.item();
    EXPECT_EQ(losses[static_cast<std::size_t>(row)], alone);
    total += alone;
  }
  EXPECT_NEAR(result.loss.item(), total / result.count.item(), 1e-6);
}

TEST(CrossEntropy, ReadsTargetsOfEitherIndexDtype) {
  const Context context = testing::context();
  const Tensor logits = uniform_tensor(context, {4, 9}, 2);
  const Tensor wide = from_values(context, std::vector<std::int64_t>{3, 0, -1, 8}, {4});
  const Tensor narrow = from_values(context, std::vector<std::int32_t>{3, 0, -1, 8}, {4});
  EXPECT_TRUE(same_bits(cross_entropy(logits, wide, -1).loss, cross_entropy(logits, narrow, -1).loss));
}

TEST(CrossEntropy, GradientEqualsCentralDifferences) {
  const Context context = testing::context();
  const Tensor logits = uniform_tensor(context, {6, 5}, 3, DType::f64, -2, 2);
  const Tensor targets = as_tensor(context, some_targets(6, 5));
  for (const double smoothing : {0.0, 0.3}) {
    const CrossEntropyResult result = cross_entropy(logits, targets, -100, smoothing, LogitsGradient::fresh);
    const auto slopes =
        central_differences(logits, [&] { return cross_entropy(logits, targets, -100, smoothing).loss.item(); });
    std::vector<double> gradient = doubles(result.grad_logits);
    for (double& slope : gradient) slope /= result.count.item();
    EXPECT_LT(relative_error(gradient, slopes), 1e-8);
  }
}

TEST(CrossEntropy, GradientRowsSumToZeroAndIgnoredRowsAreZero) {
  const Context context = testing::context();
  const std::vector<std::int64_t> targets = some_targets(10, 4099);
  const Tensor logits = uniform_tensor(context, {10, 4099}, 4, DType::f32, -3, 3);
  const CrossEntropyResult result =
      cross_entropy(logits, as_tensor(context, targets), -100, 0.1, LogitsGradient::fresh);
  for (std::int64_t row = 0; row < 10; ++row) {
    double sum = 0, magnitude = 0;
    for (const double g : doubles(result.grad_logits.select(0, row))) {
      sum += g;
      magnitude += std::abs(g);
    }
    EXPECT_NEAR(sum / result.count.item(), 0, 1e-7);
    EXPECT_EQ(magnitude == 0, targets[static_cast<std::size_t>(row)] == -100);
  }
}

TEST(CrossEntropy, OverTheLogitsGivesTheBitsOfAFreshGradient) {
  const Context context = testing::context();
  for (const DType dtype : kFloats)
    for (const double smoothing : {0.0, 0.2}) {
      const Tensor logits = uniform_tensor(context, {37, 2500}, 5, dtype, -4, 4);
      const Tensor targets = as_tensor(context, some_targets(37, 2500));
      const CrossEntropyResult fresh = cross_entropy(logits, targets, -100, smoothing, LogitsGradient::fresh);
      const CrossEntropyResult plain = cross_entropy(logits, targets, -100, smoothing);
      const std::uint64_t version = logits.storage()->version();
      const CrossEntropyResult over = cross_entropy(logits, targets, -100, smoothing, LogitsGradient::over_logits);
      EXPECT_TRUE(same_bits(fresh.loss, over.loss));
      EXPECT_TRUE(same_bits(fresh.loss, plain.loss));
      EXPECT_TRUE(same_bits(fresh.grad_logits, over.grad_logits)) << dtype;
      EXPECT_EQ(over.grad_logits.raw(), logits.raw());
      EXPECT_GT(logits.storage()->version(), version);
      EXPECT_FALSE(plain.grad_logits.defined());
    }
}

TEST(CrossEntropy, WithEveryTargetIgnoredTheLossAndItsGradientAreZero) {
  const Context context = testing::context();
  const Tensor logits = uniform_tensor(context, {3, 4}, 6);
  const Tensor targets = from_values(context, std::vector<std::int64_t>{7, 7, 7}, {3});
  const CrossEntropyResult result = cross_entropy(logits, targets, 7, 0, LogitsGradient::fresh);
  EXPECT_EQ(result.count.item(), 0);
  EXPECT_EQ(result.loss.item(), 0);
  EXPECT_EQ(doubles(result.grad_logits), std::vector<double>(12, 0));
  EXPECT_EQ(cross_entropy(empty(context, {0, 4}), empty(context, {0}, DType::i64)).count.item(), 0);
}

TEST(CrossEntropy, NonFiniteLogitsGiveANonFiniteLoss) {
  const Context context = testing::context();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : kFloats)
    for (const double bad : {infinity, -infinity, std::nan("")}) {
      std::vector<double> values = uniform(2 * 70, 7);
      values[3] = bad;  // the target itself
      const Tensor targets = from_values(context, std::vector<std::int64_t>{3, 3}, {2});
      const Tensor logits = tensor_of(context, values, {2, 70}, dtype);
      EXPECT_FALSE(std::isfinite(cross_entropy(logits, targets, -100, 0, LogitsGradient::fresh).loss.item()));
    }
}

TEST(CrossEntropy, AMaskedClassCostsNothingUnlessItIsTheTarget) {
  const Context context = testing::context();
  std::vector<double> values = uniform(70, 8);
  const Tensor targets = from_values(context, std::vector<std::int64_t>{3}, {1});
  values[69] = -1e30;
  const double nearly = cross_entropy(tensor_of(context, values, {1, 70}), targets).loss.item();
  values[69] = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(cross_entropy(tensor_of(context, values, {1, 70}), targets).loss.item(), nearly);
}

TEST(CrossEntropy, GivesTheSameBitsAtOneAndTwoThreads) {
  for (const DType dtype : kFloats) {
    const auto run = [&](int threads) {
      const Context context = testing::context(threads);
      const Tensor logits = uniform_tensor(context, {1031, 65}, 9, dtype);
      return cross_entropy(logits, as_tensor(context, some_targets(1031, 65)), -100, 0, LogitsGradient::fresh);
    };
    const CrossEntropyResult one = run(1), two = run(2);
    EXPECT_TRUE(same_bits(one.loss, two.loss) && same_bits(one.grad_logits, two.grad_logits)) << dtype;
  }
}

TEST(CrossEntropy, NamesTheRowOfAnIllegalTargetAndWritesNothing) {
  const Context context = testing::context();
  const Tensor logits = uniform_tensor(context, {3, 5}, 10);
  const std::vector<double> before = doubles(logits);
  const Tensor targets = from_values(context, std::vector<std::int64_t>{0, -100, 5}, {3});
  EXPECT_EQ(error_of([&] { cross_entropy(logits, targets, -100, 0, LogitsGradient::over_logits); }),
            "cross_entropy: target 5 of row 2 is neither a class in [0, 5) nor the ignore index -100");
  EXPECT_EQ(error_of([&] { cross_entropy(logits, targets, -1); }),
            "cross_entropy: target -100 of row 1 is neither a class in [0, 5) nor the ignore index -1");
  EXPECT_EQ(doubles(logits), before);
}

TEST(CrossEntropy, RefusesShapesAndOptionsThatDoNotFit) {
  const Context context = testing::context();
  const Tensor logits = zeros(context, {3, 5}), targets = zeros(context, {3}, DType::i64);
  EXPECT_EQ(error_of([&] { cross_entropy(zeros(context, {15}), targets); }),
            "cross_entropy: logits must be (rows, classes), got f32 (15) on cpu");
  EXPECT_EQ(error_of([&] { cross_entropy(logits, zeros(context, {4}, DType::i64)); }),
            "cross_entropy: targets must be (3), got i64 (4) on cpu");
  EXPECT_EQ(error_of([&] { cross_entropy(logits, zeros(context, {3}, DType::u8)); }),
            "an index dtype (i32, i64) is needed, got u8");
  EXPECT_EQ(error_of([&] { cross_entropy(logits, targets, -100, 1.5); }),
            "cross_entropy: label_smoothing must be in [0, 1], got 1.5");
  EXPECT_EQ(error_of([&] {
              cross_entropy(logits.transpose(0, 1), zeros(context, {5}, DType::i64), -100, 0,
                            LogitsGradient::over_logits);
            }),
            "cross_entropy: logits f32 (5, 3) on cpu is written in place and must be dense, but has strides (1, 5)");
}

}  // namespace
}  // namespace keel
