#include "keel/kernels/blocked_loss.h"

#include <gtest/gtest.h>

#include <limits>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/loss.h"
#include "tests/error_of.h"
#include "tests/kernels/row_support.h"

namespace keel {
namespace {

using namespace keel::testing;

// cross_entropy() of whole rows, from blocks of `step` classes.
struct FromBlocks {
  kernels::SettledLoss settled;
  Tensor gradient;  // of the mean, times `factor`

  FromBlocks(const Tensor& logits, const Tensor& targets, std::int64_t step, double smoothing, double factor) {
    const std::int64_t rows = logits.dim(0), classes = logits.dim(1);
    const BlockedLoss loss = kernels::start_blocked_loss(targets, classes, logits.dtype(), -100, smoothing);
    std::vector<Tensor> blocks;
    for (std::int64_t first = 0; first < classes; first += step) {
      blocks.push_back(kernels::clone(logits.slice(1, first, std::min(first + step, classes))));
      // Rows in two calls.
      kernels::fold_logits(loss, blocks.back().slice(0, 0, rows / 2), 0, first);
      kernels::fold_logits(loss, blocks.back().slice(0, rows / 2, rows), rows / 2, first);
    }
    settled = kernels::settle_loss(loss);
    const Tensor scale = kernels::full(logits.context(), {}, factor, loss.state.dtype());
    for (std::size_t i = 0; i < blocks.size(); ++i)
      kernels::logits_gradient(loss, blocks[i], 0, static_cast<std::int64_t>(i) * step, scale, settled.count);
    gradient = kernels::concat(blocks, 1);
  }
};

TEST(BlockedLoss, EqualsCrossEntropyForEveryDtypeAndBlock) {
  const Context context = testing::context(2);
  const Tensor targets = from_values(context, std::vector<std::int32_t>{3, -100, 699, 256, 0, 511, 512}, {7});
  for (const DType dtype : kFloats)
    for (const double smoothing : {0.0, 0.1, 1.0})
      for (const std::int64_t step : {1, 37, 256, 513, 700}) {
        SCOPED_TRACE(concat(dtype, ", smoothing ", smoothing, ", step ", step));
        const Tensor logits = uniform_tensor(context, {7, 700}, 1, dtype, -9, 9);
        const auto whole = kernels::cross_entropy(logits, targets, -100, smoothing, kernels::LogitsGradient::fresh);
        const FromBlocks blocks(logits, targets, step, smoothing, 12);
        const double sums = dtype == DType::f64 ? 1e-13 : 4e-6;
        EXPECT_EQ(blocks.settled.count.item(), whole.count.item());
        EXPECT_NEAR(blocks.settled.loss.item(), whole.loss.item(), sums * whole.loss.item());
        EXPECT_LE(relative_error(doubles(blocks.settled.losses), doubles(whole.losses)), sums);
        std::vector<double> gradient = doubles(whole.grad_logits);
        for (double& value : gradient) value *= 12 / whole.count.item();
        EXPECT_LE(relative_error(doubles(blocks.gradient), gradient), 2 * tolerance(dtype));
      }
}

TEST(BlockedLoss, MaskedBlocksCostNothingAndNaNIsMetWhereverItIs) {
  const Context context = testing::context(1);
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor targets = from_values(context, std::vector<std::int64_t>{4, 4, 4, 4}, {4});
  const Tensor logits = kernels::full(context, {4, 6}, -infinity);
  kernels::fill(logits.slice(1, 4, 5).slice(0, 0, 2), 2);  // rows 0 and 1: the target alone
  kernels::fill(logits.slice(1, 0, 1).slice(0, 1, 2), NAN);
  kernels::fill(logits.slice(1, 2, 3).slice(0, 3, 4), infinity);
  for (const std::int64_t step : {1, 2, 3, 6}) {
    const std::vector<double> losses = doubles(FromBlocks(logits, targets, step, 0, 1).settled.losses);
    EXPECT_EQ(losses[0], 0);
    for (const std::size_t row : {1, 2, 3}) EXPECT_TRUE(std::isnan(losses[row])) << row << ", step " << step;
  }
}

TEST(BlockedLoss, RefusesBlocksOutsideItsRowsAndClasses) {
  const Context context = testing::context(1);
  const Tensor targets = zeros(context, {3}, DType::i64);
  const BlockedLoss loss = kernels::start_blocked_loss(targets, 5, DType::f32, -100, 0);
  EXPECT_NE(error_of([&] {
              kernels::fold_logits(loss, zeros(context, {3, 5}), 1, 0);
            }).find("rows [1, 4)"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              kernels::fold_logits(loss, zeros(context, {3, 4}), 0, 2);
            }).find("classes [2, 6)"),
            std::string::npos);
  EXPECT_NE(error_of([&] { kernels::fold_logits(loss, zeros(context, {3, 5}, DType::f64), 0, 0); }), "");
  EXPECT_NE(error_of([&] { kernels::start_blocked_loss(targets, 0, DType::f32, -100, 0); }), "");
  const Tensor few = from_values(context, std::vector<std::int64_t>{2, 0, -100, 3}, {4});
  EXPECT_EQ(doubles(kernels::counted_rows(few, 4, -100)), (std::vector<double>{0, 1, 3}));
  EXPECT_EQ(error_of([&] { kernels::counted_rows(few, 3, -100); }),
            "cross_entropy: target 3 of row 3 is neither a class in [0, 3) nor the ignore index -100");
}

}  // namespace
}  // namespace keel
