// Softmax cross-entropy over blocks of classes, and the last layer without logits, on a device.

#include "keel/kernels/blocked_loss.h"

#include <limits>

#include "keel/autograd/backward.h"
#include "keel/autograd/linear_cross_entropy.h"
#include "keel/kernels/loss.h"
#include "tests/cuda/device.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(BlockedLossOnDevice);

struct BlocksOnDevice {
  kernels::SettledLoss settled;
  Tensor gradient;

  BlocksOnDevice(const Tensor& logits, const Tensor& targets, std::int64_t step, double smoothing) {
    const std::int64_t classes = logits.dim(1);
    const BlockedLoss loss = kernels::start_blocked_loss(targets, classes, logits.dtype(), -100, smoothing);
    std::vector<Tensor> blocks;
    for (std::int64_t first = 0; first < classes; first += step) {
      blocks.push_back(off_boundary(logits.slice(1, first, std::min(first + step, classes))));
      kernels::fold_logits(loss, blocks.back(), 0, first);
    }
    settled = kernels::settle_loss(loss);
    const Tensor factor = kernels::full(logits.context(), {}, 8, loss.state.dtype());
    for (std::size_t i = 0; i < blocks.size(); ++i)
      kernels::logits_gradient(loss, blocks[i], 0, static_cast<std::int64_t>(i) * step, factor, settled.count);
    gradient = kernels::concat(blocks, 1);
  }
};

TEST_P(BlockedLossOnDevice, EqualsTheProcessorInFp64ForEveryDtypeAndBlock) {
  const std::vector<std::int64_t> targets = {3, -100, 299, 128, 0};
  for (const DType dtype : kKernelTypes)
    for (const double smoothing : {0.0, 0.1})
      for (const std::int64_t step : {7, 128, 300}) {
        SCOPED_TRACE(::testing::Message() << dtype << smoothing << ' ' << step);
        const Tensor logits = uniform_tensor(device, {5, 300}, 1, dtype, -5, 5);
        const BlocksOnDevice there(logits, from_values(device, targets, {5}), step, smoothing);
        const BlocksOnDevice here(wide(logits), from_values(host, targets, {5}), step, smoothing);
        EXPECT_EQ(there.settled.count.item(), 4);
        expect_close(there.settled.loss, doubles(here.settled.loss), 1, 1);
        expect_close(there.settled.losses, doubles(here.settled.losses), 1, 1);
        expect_close(there.gradient, doubles(here.gradient), 1, 0.1);
      }
}

TEST_P(BlockedLossOnDevice, MaskedBlocksCostNothingAndNaNIsMetWhereverItIs) {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> values(4 * 6, -infinity);
  values[4] = values[6 + 4] = 2;  // rows 0 and 1: the target alone
  values[6] = std::nan("");
  values[18 + 2] = infinity;
  const Tensor logits = tensor_of(device, values, {4, 6});
  const Tensor targets = from_values(device, std::vector<std::int32_t>{4, 4, 4, 4}, {4});
  for (const std::int64_t step : {1, 2, 6}) {
    const std::vector<double> losses = doubles(BlocksOnDevice(logits, targets, step, 0).settled.losses);
    EXPECT_EQ(losses[0], 0);
    for (const std::size_t row : {1, 2, 3}) EXPECT_TRUE(std::isnan(losses[row])) << row << ", step " << step;
  }
}

TEST_P(BlockedLossOnDevice, OfALastLayerNamesTheRowOfAnIllegalTargetAndTakesItAsIgnored) {
  const Variable hidden(uniform_tensor(device, {4, 8}, 1), true), weight(uniform_tensor(device, {9, 8}, 2), true);
  const Tensor targets = from_values(device, std::vector<std::int64_t>{-100, 2, 9, 4}, {4});
  const Tensor rows = from_values(device, std::vector<std::int64_t>{1, 2, 3}, {3});
  const CrossEntropyLoss loss = linear_cross_entropy(hidden, weight, {}, targets, {.rows = rows, .block_classes = 4});
  backward(loss.loss);
  EXPECT_EQ(error_of([&] { device.synchronize(); }), "cross_entropy: target 9 at position 2 is outside [0, 9)");
  EXPECT_EQ(loss.count.item(), 2);
  EXPECT_EQ(doubles(hidden.grad().slice(0, 2, 3)), std::vector<double>(8, 0));
}

TEST_P(BlockedLossOnDevice, WithEveryTargetIgnoredTheLossAndItsGradientsAreZero) {
  const Variable hidden(uniform_tensor(device, {3, 8}, 1), true), weight(uniform_tensor(device, {9, 8}, 2), true);
  const Tensor targets = kernels::full(device, {3}, -100, DType::i64);
  const CrossEntropyLoss loss = linear_cross_entropy(hidden, weight, {}, targets, {.block_classes = 4});
  backward(loss.loss);
  EXPECT_EQ(loss.loss.value().item(), 0);
  EXPECT_EQ(doubles(hidden.grad()), std::vector<double>(24, 0));
  EXPECT_EQ(doubles(weight.grad()), std::vector<double>(72, 0));
}

TEST_P(BlockedLossOnDevice, GivesTheSameBitsInAnyOrder) {
  const Tensor targets = from_values(device, std::vector<std::int64_t>{1, -100, 130, 64, 7, 9, 11}, {7});
  for (const DType dtype : kKernelTypes) {
    const Tensor logits = uniform_tensor(device, {7, 131}, 8, dtype, -4, 4);
    expect_same_bits_again([&] {
      const BlocksOnDevice result(logits, targets, 64, 0.1);
      return std::vector{result.settled.loss, result.settled.losses, result.gradient};
    });
  }
}

}  // namespace
}  // namespace keel
