// Sources of which only the first steps of each epoch are taken.

#include "keel/data/limited_epochs.h"

#include <gtest/gtest.h>

#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::error_of;

// 11 rows in steps of 4, the last of which has 3; each epoch in an order of its own.
class ShuffledEpochs final : public BatchSource {
 public:
  explicit ShuffledEpochs(std::int64_t epochs = 0) : epochs_(epochs) {}
  std::int64_t steps() const override { return epochs_ == 0 ? kEndless : 3 * epochs_; }
  double steps_per_epoch() const override { return 3; }
  std::int64_t rows(std::int64_t step) const override { return step % 3 == 2 ? 3 : 4; }
  Batch load(std::int64_t step, Rows range) const override {
    check_rows(step, range);
    return Batch(testing::context(1), 100 * step + range.begin, range.end - range.begin);
  }
  std::string fingerprint() const override { return "eleven rows"; }

 private:
  std::int64_t epochs_;
};

std::vector<std::int64_t> firsts_of(const BatchSource& source, std::int64_t steps) {
  std::vector<std::int64_t> firsts;
  for (std::int64_t step = 0; step < steps; ++step)
    firsts.push_back(source.load(step, {1, 2}).examples().front() / 100);
  return firsts;
}

TEST(LimitedEpochs, TakeTheFirstStepsOfEach) {
  const auto whole = std::make_shared<ShuffledEpochs>();
  const auto two = limited_epochs(whole, 2);
  EXPECT_EQ(firsts_of(*two, 6), (std::vector<std::int64_t>{0, 1, 3, 4, 6, 7}));
  EXPECT_EQ(two->steps(), BatchSource::kEndless);
  EXPECT_EQ(two->steps_per_epoch(), 2);
  EXPECT_EQ(two->rows(3), 4);
  EXPECT_EQ(two->fingerprint(), "eleven rows, 2 of 3 steps of each epoch");
  EXPECT_EQ(firsts_of(*limited_epochs(whole, 1), 3), (std::vector<std::int64_t>{0, 3, 6}));
  EXPECT_EQ(limited_epochs(whole, 3), whole) << "nothing is left out";
  EXPECT_EQ(limited_epochs(std::make_shared<ShuffledEpochs>(4), 2)->steps(), 8);
}

// Its epochs end where they are told to.
class EndsAfter final : public BatchSource {
 public:
  explicit EndsAfter(double epoch) : epoch_(epoch) {}
  double steps_per_epoch() const override { return epoch_; }
  std::int64_t rows(std::int64_t) const override { return 1; }
  Batch load(std::int64_t, Rows) const override { return {}; }

 private:
  double epoch_;
};

TEST(LimitedEpochs, RefuseDataWithoutEpochsAndThoseThatEndInsideOfSteps) {
  const auto refusal = [](double epoch, std::int64_t steps) {
    return error_of([&] { limited_epochs(std::make_shared<EndsAfter>(epoch), steps); });
  };
  EXPECT_NE(refusal(0, 0).find("this data has no epochs"), std::string::npos);
  EXPECT_EQ(refusal(2.5, 2), "its epochs of 2.5 steps end inside of steps");
  EXPECT_EQ(refusal(3, 0), "an epoch of 0 steps has nothing to train on");
}

}  // namespace
}  // namespace keel
