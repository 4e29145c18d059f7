#include "keel/data/examples.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "keel/data/token_batch.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::doubles;
using testing::error_of;

TEST(Collate, LearnsOnlyTheMarkedTokensAndPadsTheRest) {
  const std::vector<TokenExample> examples = {{{1, 2, 3, 4, 5}, {0, 0, 0, 1, 1}}, {{6, 7}, {1, 1}}, {{}, {}}};
  const Batch batch = collate(testing::context(), examples, 4, 9, 30);
  EXPECT_EQ(doubles(batch[kInputIds]), (std::vector<double>{1, 2, 3, 4, 6, 7, 9, 9, 9, 9, 9, 9}));
  EXPECT_EQ(doubles(batch[kLabels]),
            (std::vector<double>{-100, -100, 4, 5, 7, -100, -100, -100, -100, -100, -100, -100}));
  EXPECT_EQ(doubles(batch.sample_ids()), (std::vector<double>{30, 31, 32}));
  EXPECT_EQ(batch.weight(kTokenWeight), 3);
}

TEST(Collate, RefusesWhatDoesNotFit) {
  const Context context = testing::context();
  EXPECT_NE(error_of([&] {
              collate(context, std::vector<TokenExample>{{{1, 2, 3}, {0, 0, 0}}}, 1, 0, 0);
            }).find("block of 1"),
            std::string::npos);
  EXPECT_FALSE(error_of([&] { collate(context, std::vector<TokenExample>{{{1, 2}, {0}}}, 4, 0, 0); }).empty());
}

TEST(ExampleLoader, CountsItsExamples) {
  const auto source = [](std::int64_t step, std::int64_t row) {
    return TokenExample{{static_cast<std::int32_t>(step), static_cast<std::int32_t>(row)}, {0, 1}};
  };
  const ExampleLoader loader(testing::context(), source, {.rows = 4, .block = 1, .count = 10});
  EXPECT_EQ(loader.steps(), 3);
  EXPECT_EQ(doubles(loader.load_all(2)[kLabels]), (std::vector<double>{0, 1}));
  EXPECT_EQ(doubles(loader.load(1, {2, 4})[kLabels]), (std::vector<double>{2, 3}));
  EXPECT_EQ(doubles(loader.load(1, {2, 4}).sample_ids()), (std::vector<double>{6, 7}));
  EXPECT_FALSE(error_of([&] { loader.load_all(3); }).empty());
  const ExampleLoader endless(testing::context(), source, {.rows = 4, .block = 1});
  EXPECT_EQ(endless.steps(), BatchSource::kEndless);
  EXPECT_EQ(endless.load_all(1'000'000'000).rows(), 4);
}

TEST(ExampleLoader, TakesOneRowOfOneTokenOfOneExampleAndNoLess) {
  const auto source = [](std::int64_t, std::int64_t) { return TokenExample{{7, 8}, {0, 1}}; };
  const auto loader = [&](std::int64_t rows, std::int64_t block, std::int64_t count) {
    return ExampleLoader(testing::context(), source, {.rows = rows, .block = block, .count = count});
  };
  EXPECT_EQ(loader(1, 1, 1).steps(), 1);
  EXPECT_EQ(doubles(loader(1, 1, 1).load_all(0)[kLabels]), std::vector<double>{8});
  for (const auto& [rows, block, count] : {std::tuple{0, 1, 1}, {1, 0, 1}, {1, 1, 0}})
    EXPECT_NE(error_of([&, rows = rows, block = block, count = count] {
                loader(rows, block, count);
              }).find("each must be at least 1"),
              std::string::npos);
}

TEST(ShuffledExamples, GivesEachExampleOnceAnEpoch) {
  std::vector<TokenExample> examples;
  for (std::int32_t i = 0; i < 10; ++i) examples.push_back({{i, i}, {0, 1}});
  const ExampleLoader loader = shuffled_examples(testing::context(), examples, {.rows = 4, .block = 1}, 3);
  std::vector<double> order;
  for (std::int64_t step = 0; step < 5; ++step)
    for (const double token : doubles(loader.load_all(step)[kInputIds])) order.push_back(token);
  const std::set<double> first(order.begin(), order.begin() + 10), second(order.begin() + 10, order.end());
  EXPECT_EQ(first.size(), 10u);
  EXPECT_EQ(second.size(), 10u);
  EXPECT_NE(std::vector<double>(order.begin(), order.begin() + 10),
            std::vector<double>(order.begin() + 10, order.end()));
  EXPECT_FALSE(error_of([] { shuffled_examples(testing::context(), {}, {}, 1); }).empty());
}

}  // namespace
}  // namespace keel
