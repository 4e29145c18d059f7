// The running softmax that attention's kernel takes block by block.

#include "keel/kernels/running_softmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace keel {
namespace {

// By blocks of so many scores; the last may be shorter.
RunningSoftmax by_blocks(const std::vector<float>& scores, std::size_t extent) {
  RunningSoftmax softmax;
  for (std::size_t begin = 0; begin < scores.size(); begin += extent) {
    const std::size_t end = std::min(begin + extent, scores.size());
    float largest = -INFINITY, total = 0;
    for (std::size_t i = begin; i < end; ++i) largest = RunningSoftmax::Larger{}(largest, scores[i]);
    const RunningSoftmax::Block block = softmax.begin(largest);
    for (std::size_t i = begin; i < end; ++i) total += block.weight(scores[i]);
    softmax.end(block, total);
  }
  return softmax;
}

TEST(RunningSoftmax, KnowsTheSumOfTheWholeRowWhateverTheBlocks) {
  const std::vector<float> rows[] = {{1, 3, 2, 5}, {5, 3, 2, 1}, {0.25f}, {-80, 80, 79.5f, -3, 80, 12}, {-1e4f, -1e4f}};
  for (const std::vector<float>& scores : rows) {
    const double largest = *std::max_element(scores.begin(), scores.end());
    double total = 0;
    for (const float score : scores) total += std::exp(static_cast<double>(score) - largest);
    for (std::size_t extent = 1; extent <= scores.size(); ++extent) {
      const RunningSoftmax softmax = by_blocks(scores, extent);
      EXPECT_EQ(softmax.largest, largest);
      EXPECT_NEAR(softmax.total, total, 1e-6 * total) << extent;
      EXPECT_NEAR(softmax.log_sum_exp(), largest + std::log(total), 1e-6 * (1 + std::fabs(largest)));
    }
  }
}

TEST(RunningSoftmax, CountsWhatCameBeforeByWhatTheMaximumRose) {
  RunningSoftmax softmax;
  EXPECT_EQ(softmax.begin(3).rescale, 0) << "of nothing";
  EXPECT_EQ(softmax.begin(2).rescale, 1) << "no larger score";
  EXPECT_NEAR(softmax.begin(5).rescale, std::exp(-2.0), 1e-7);
  EXPECT_EQ(softmax.largest, 5);
}

TEST(RunningSoftmax, HiddenKeysCountNothingAndNanComesOut) {
  for (const std::size_t extent : {1, 2, 3}) {
    const RunningSoftmax none = by_blocks({-INFINITY, -INFINITY, -INFINITY}, extent);
    EXPECT_EQ(none.total, 0);
    EXPECT_EQ(none.log_sum_exp(), -INFINITY);
    const RunningSoftmax one = by_blocks({-INFINITY, 2, -INFINITY}, extent);
    EXPECT_EQ(one.total, 1);
    EXPECT_EQ(one.largest, 2);
    EXPECT_TRUE(std::isnan(by_blocks({1, NAN, 3}, extent).total)) << extent;
  }
}

}  // namespace
}  // namespace keel
