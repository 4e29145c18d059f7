// Sequences that are cut, and what their weights are then.

#include "keel/data/shortened.h"

#include <gtest/gtest.h>

#include "keel/data/collator.h"
#include "keel/data/token_batch.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;

// One batch, at every step.
class Always : public BatchSource {
 public:
  explicit Always(Batch batch) : batch_(std::move(batch)) {}
  std::int64_t rows(std::int64_t) const override { return batch_.rows(); }
  Batch load(std::int64_t, Rows) const override { return batch_; }
  std::string fingerprint() const override { return "always"; }

 private:
  Batch batch_;
};

Batch cut(Batch batch, std::int64_t whole, std::int64_t length) {
  const auto rows = batch.rows();
  return shortened(std::make_shared<Always>(std::move(batch)), whole, [=](std::int64_t step) { return length + step; })
      ->load(0, {0, rows});
}

TEST(Shortened, KeepsTheFirstPositionsAndCountsWhatIsLeft) {
  const Context context = testing::context(1);
  Batch batch(context, 5, 2);
  batch.set("input_ids", from_values<std::int32_t>(context, {1, 2, 3, 4, 5, 6}, {2, 3}));
  batch.set("labels", from_values<std::int32_t>(context, {2, -100, 4, 5, 6, 7}, {2, 3}));
  batch.set("vectors", from_values<float>(context, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {2, 3, 2}));
  batch.set("label", from_values<std::int32_t>(context, {8, 9}, {2}));
  batch.set("pair", from_values<std::int32_t>(context, {8, 9, 10, 11}, {2, 2}));
  batch.set_weight("tokens", 5).keep_on_host("labels");
  const Batch left = cut(batch, 3, 2);
  EXPECT_TRUE(left.stays_on_host("labels"));
  EXPECT_FALSE(left.stays_on_host("input_ids"));
  EXPECT_EQ(doubles(left["input_ids"]), (std::vector<double>{1, 2, 4, 5}));
  EXPECT_EQ(doubles(left["labels"]), (std::vector<double>{2, -100, 5, 6}));
  EXPECT_EQ(doubles(left["vectors"]), (std::vector<double>{1, 2, 3, 4, 7, 8, 9, 10}));
  EXPECT_EQ(doubles(left["label"]), (std::vector<double>{8, 9}));
  EXPECT_EQ(doubles(left["pair"]), (std::vector<double>{8, 9, 10, 11})) << "is no sequence";
  EXPECT_EQ(left.weight("tokens"), 3);
  EXPECT_EQ(left.weight("rows"), 2);
  EXPECT_EQ(doubles(left.sample_ids()), doubles(batch.sample_ids()));
  EXPECT_EQ(cut(batch, 3, 3).signature(), batch.signature());
}

TEST(Shortened, CountsSequencesThatWereFilledUpByTheirLengths) {
  const Context context = testing::context(1);
  Batch batch(context, 0, 3);
  batch.set("ids", from_values<std::int32_t>(context, std::vector<std::int32_t>(12, 1), {3, 4}));
  batch.set("lengths", from_values<std::int64_t>(context, {4, 1, 2}, {3}));
  batch.set_weight("tokens", 7).set_weight("positions", 12);
  const Batch left = cut(batch, 4, 2);
  EXPECT_EQ(doubles(left["lengths"]), (std::vector<double>{2, 1, 2}));
  EXPECT_EQ(left.weight("tokens"), 5);
  EXPECT_EQ(left.weight("positions"), 6);
}

TEST(Shortened, CountsTheTargetsThatAreLeftWhereTheWeightIsTheirNumber) {
  const Context context = testing::context(1);
  const auto batch_of = [&](double tokens, const Tensor& labels) {
    Batch batch(context, 0, 2);
    batch.set("ids", from_values<std::int32_t>(context, std::vector<std::int32_t>(8, 1), {2, 4}));
    batch.set("labels", labels).set("lengths", from_values<std::int64_t>(context, {4, 3}, {2}));
    return batch.set_weight("tokens", tokens);
  };
  const Tensor labels = from_values<std::int32_t>(context, {-100, 5, 6, -100, 7, -100, -100, -100}, {2, 4});
  for (const std::int64_t length : {1, 2, 3})
    EXPECT_EQ(cut(batch_of(3, labels), 4, length).weight("tokens"), static_cast<double>(length));
  EXPECT_EQ(cut(batch_of(7, labels), 4, 2).weight("tokens"), 4) << "the lengths";
  const Tensor of_rows = from_values<std::int32_t>(context, {1, 2}, {2});
  EXPECT_EQ(cut(batch_of(2, of_rows), 4, 2).weight("tokens"), 4) << "labels of rows are none of sequences";
}

TEST(Shortened, RefusesWeightsThatItCannotCountAndRowsThatAreNoSequences) {
  const Context context = testing::context(1);
  Batch batch(context, 0, 1);
  batch.set("x", from_values<float>(context, {1, 2, 3}, {1, 3}));
  const auto told = [&](std::int64_t whole, std::int64_t length) {
    return testing::error_of([&] { cut(batch, whole, length); });
  };
  EXPECT_EQ(told(3, 2), "");
  EXPECT_NE(told(4, 2).find("needs sequences of 4 positions, but a batch has\nx f32 (rows, 3)"), std::string::npos);
  EXPECT_NE(told(3, 4).find("is to have 4 of 3 positions"), std::string::npos);
  EXPECT_NE(told(3, 0).find("is to have 0 of 3 positions"), std::string::npos);
  batch.set_weight("crests", 1);
  EXPECT_NE(told(3, 2).find("cannot tell what the weight 'crests' of shorter sequences is"), std::string::npos);
}

TEST(Shortened, CutsAnyNumberOfRowsToAnyLength) {
  const Context context = testing::context(1);
  for (const std::int64_t rows : {1, 2, 3, 5})
    for (const std::int64_t whole : {1, 2, 4}) {
      std::vector<std::int32_t> ids;
      std::vector<std::int64_t> lengths;
      for (std::int64_t i = 0; i < rows * whole; ++i) ids.push_back(static_cast<std::int32_t>(i + 1));
      for (std::int64_t row = 0; row < rows; ++row) lengths.push_back(row % (whole + 1));
      Batch batch(context, 0, rows);
      batch.set("ids", from_values(context, ids, {rows, whole})).set("lengths", from_values(context, lengths, {rows}));
      batch.set_weight("tokens", 1).set_weight("positions", static_cast<double>(rows * whole));
      for (std::int64_t length = 1; length <= whole; ++length) {
        std::vector<double> left_ids, left_lengths;
        double tokens = 0;
        for (std::int64_t row = 0; row < rows; ++row) {
          for (std::int64_t i = 0; i < length; ++i) left_ids.push_back(static_cast<double>(row * whole + i + 1));
          left_lengths.push_back(static_cast<double>(std::min(row % (whole + 1), length)));
          tokens += left_lengths.back();
        }
        const Batch left = cut(batch, whole, length);
        EXPECT_EQ(doubles(left["ids"]), left_ids) << rows << ' ' << whole << ' ' << length;
        EXPECT_EQ(doubles(left["lengths"]), left_lengths);
        EXPECT_EQ(left.weight("positions"), static_cast<double>(rows * length));
        EXPECT_EQ(left.weight("tokens"), length == whole ? 1 : tokens) << "counts anew what was cut alone";
      }
    }
}

}  // namespace
}  // namespace keel
