// Softmax cross-entropy on a device.

#include "keel/kernels/loss.h"

#include <limits>

#include "tests/cuda/device.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace keel::testing;
using kernels::cross_entropy;
using kernels::CrossEntropyResult;
using kernels::LogitsGradient;

KEEL_DEVICE_SUITE(CrossEntropyOnDevice);

std::vector<std::int64_t> some_targets(std::int64_t rows, std::int64_t classes) {
  std::vector<std::int64_t> targets;
  for (std::int64_t row = 0; row < rows; ++row) targets.push_back(row % 5 == 3 ? -100 : row * 7919 % classes);
  return targets;
}

Tensor as_tensor(const Context& context, const std::vector<std::int64_t>& targets) {
  return from_values(context, targets, {static_cast<std::int64_t>(targets.size())});
}

// The gradient's elements are differences of two terms of at most 1 + what the target is worth.
void expect_equal(const CrossEntropyResult& result, const CrossEntropyResult& expected) {
  EXPECT_EQ(result.count.item(), expected.count.item());
  EXPECT_EQ(result.loss.dtype(), DType::f32);
  expect_close(result.loss, expected.loss, 1, 1);
  expect_close(result.losses, expected.losses, 1, 1);
  ASSERT_EQ(result.grad_logits.defined(), expected.grad_logits.defined());
  if (result.grad_logits.defined()) expect_close(result.grad_logits, expected.grad_logits, 1, 0.05);
}

TEST_P(CrossEntropyOnDevice, EqualsTheProcessorInFp64ForEveryDtypeSizeAndSmoothing) {
  for (const DType dtype : kKernelTypes)
    for (const Dims& shape : {Dims{1, 1}, Dims{13, 7}, Dims{9, 64}, Dims{3, 1031}, Dims{2, 2048}})
      for (const double smoothing : {0.0, 0.1, 1.0}) {
        SCOPED_TRACE(::testing::Message() << dtype << shape << smoothing);
        const Tensor logits = uniform_tensor(device, shape, 1, dtype, -5, 5);
        const std::vector<std::int64_t> targets = some_targets(shape[0], shape[1]);
        for (const LogitsGradient gradient : {LogitsGradient::none, LogitsGradient::fresh})
          expect_equal(cross_entropy(logits, as_tensor(device, targets), -100, smoothing, gradient),
                       cross_entropy(wide(logits), as_tensor(host, targets), -100, smoothing, gradient));
      }
}

TEST_P(CrossEntropyOnDevice, RowsThatDoNotFitOnChipEqualTheProcessor) {
  const Tensor logits = uniform_tensor(device, {2, 28685}, 2, DType::f32, -5, 5);
  const std::vector<std::int64_t> targets = {3, 28684};
  expect_equal(cross_entropy(logits, as_tensor(device, targets), -100, 0.1, LogitsGradient::fresh),
               cross_entropy(wide(logits), as_tensor(host, targets), -100, 0.1, LogitsGradient::fresh));
}

TEST_P(CrossEntropyOnDevice, OverTheLogitsGivesTheBitsOfAFreshGradient) {
  for (const DType dtype : kKernelTypes)
    for (const std::int64_t classes : {48, 331}) {
      const Tensor logits = uniform_tensor(device, {7, classes}, 3, dtype, -4, 4);
      const Tensor targets = as_tensor(device, some_targets(7, classes));
      const CrossEntropyResult fresh = cross_entropy(logits, targets, -100, 0.2, LogitsGradient::fresh);
      const CrossEntropyResult over = cross_entropy(logits, targets, -100, 0.2, LogitsGradient::over_logits);
      EXPECT_EQ(over.grad_logits.raw(), logits.raw());
      EXPECT_EQ(doubles(over.grad_logits), doubles(fresh.grad_logits)) << dtype;
      EXPECT_EQ(over.loss.item(), fresh.loss.item());
    }
}

TEST_P(CrossEntropyOnDevice, ReadsTargetsOfEitherIndexDtypeAndLogitsThatBeginAnywhere) {
  const Tensor logits = uniform_tensor(device, {4, 9}, 4);
  const Tensor wide_targets = from_values(device, std::vector<std::int64_t>{3, 0, -1, 8}, {4});
  const Tensor narrow_targets = from_values(device, std::vector<std::int32_t>{3, 0, -1, 8}, {4});
  const CrossEntropyResult expected = cross_entropy(logits, wide_targets, -1, 0, LogitsGradient::fresh);
  EXPECT_EQ(expected.count.item(), 3);
  EXPECT_EQ(cross_entropy(logits, narrow_targets, -1).loss.item(), expected.loss.item());
  const CrossEntropyResult moved = cross_entropy(off_boundary(logits), wide_targets, -1, 0, LogitsGradient::fresh);
  expect_close(moved.loss, doubles(expected.loss));
  expect_close(moved.grad_logits, doubles(expected.grad_logits), 1, 0.05);
}

TEST_P(CrossEntropyOnDevice, WithEveryTargetIgnoredTheLossAndItsGradientAreZero) {
  for (const std::int64_t classes : {4, 5}) {
    const Tensor logits = uniform_tensor(device, {3, classes}, 5);
    const Tensor targets = as_tensor(device, {1, 1, 1});  // a class, but the one to ignore
    const CrossEntropyResult result = cross_entropy(logits, targets, 1, 0.1, LogitsGradient::fresh);
    EXPECT_EQ(result.count.item(), 0);
    EXPECT_EQ(result.loss.item(), 0);
    EXPECT_EQ(doubles(result.losses), std::vector<double>(3, 0));
    EXPECT_EQ(doubles(result.grad_logits), std::vector<double>(static_cast<std::size_t>(3 * classes), 0));
  }
  const CrossEntropyResult nothing =
      cross_entropy(empty(device, {0, 4}), empty(device, {0}, DType::i64), -100, 0, LogitsGradient::fresh);
  EXPECT_EQ(nothing.count.item(), 0);
  EXPECT_EQ(nothing.loss.item(), 0);
}

TEST_P(CrossEntropyOnDevice, NonFiniteLogitsGiveANonFiniteLossOfTheirRowAlone) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : kKernelTypes)
    for (const double bad : {infinity, -infinity, std::nan("")}) {
      std::vector<double> values = uniform(2 * 70, 6);
      values[3] = bad;  // the target itself
      const Tensor logits = tensor_of(device, values, {2, 70}, dtype);
      const std::vector<double> losses = doubles(cross_entropy(logits, as_tensor(device, {3, 3})).losses);
      EXPECT_FALSE(std::isfinite(losses[0])) << dtype << bad;
      EXPECT_TRUE(std::isfinite(losses[1]));
    }
}

TEST_P(CrossEntropyOnDevice, MaskedClassesCostNothingUnlessTheyAreAllThereIs) {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> values(2 * 600, -infinity);
  values[599] = 2;  // whatever comes before is masked
  const Tensor logits = tensor_of(device, values, {2, 600});
  const CrossEntropyResult result =
      cross_entropy(logits, as_tensor(device, {599, 599}), -100, 0, LogitsGradient::fresh);
  EXPECT_EQ(doubles(result.losses)[0], 0);
  EXPECT_TRUE(std::isnan(doubles(result.losses)[1]));
  EXPECT_EQ(doubles(result.grad_logits.select(0, 0)), std::vector<double>(600, 0));
}

TEST_P(CrossEntropyOnDevice, AnIllegalTargetIsAnErrorAtTheNextWaitAndCountsAsIgnored) {
  for (const std::int64_t illegal : {std::int64_t{5}, std::int64_t{-1}, std::int64_t{1} << 40}) {
    const Tensor logits = uniform_tensor(device, {3, 5}, 7);
    const CrossEntropyResult result =
        cross_entropy(logits, as_tensor(device, {0, -100, illegal}), -100, 0, LogitsGradient::fresh);
    EXPECT_EQ(error_of([&] { device.synchronize(); }),
              concat("cross_entropy: target ", illegal, " at position 2 is outside [0, 5)"));
    EXPECT_EQ(result.count.item(), 1);
    const std::vector<double> losses = doubles(result.losses);
    EXPECT_EQ(losses[0], result.loss.item());
    EXPECT_EQ(losses[2], 0);
    EXPECT_EQ(doubles(result.grad_logits.select(0, 2)), std::vector<double>(5, 0));
  }
}

TEST_P(CrossEntropyOnDevice, GivesTheSameBitsInAnyOrder) {
  const Tensor logits = uniform_tensor(device, {301, 65}, 8);
  const Tensor targets = as_tensor(device, some_targets(301, 65));
  expect_same_bits_again([&] {
    const CrossEntropyResult result = cross_entropy(logits, targets, -100, 0.1, LogitsGradient::fresh);
    return std::vector{result.loss, result.count, result.losses, result.grad_logits};
  });
}

}  // namespace
}  // namespace keel
