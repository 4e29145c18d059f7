#include "keel/data/split.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/data/list_dataset.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using testing::error_of;
using testing::numbered;

std::vector<std::int64_t> numbers_in(const Dataset& data) {
  std::vector<std::int64_t> places(static_cast<std::size_t>(data.size())), numbers;
  std::iota(places.begin(), places.end(), 0);
  for (const Example& example : data.examples(places)) numbers.push_back(example.integer("x"));
  return numbers;
}

std::vector<std::int64_t> sizes_of(std::int64_t n, const std::vector<double>& fractions) {
  std::vector<std::int64_t> sizes;
  for (const DatasetPtr& part : split(numbered(n), fractions, 1)) sizes.push_back(part->size());
  return sizes;
}

TEST(Split, PartsAreDisjointAndHaveEveryExample) {
  for (const std::int64_t n : {0, 1, 2, 10, 101, 1000}) {
    std::vector<std::int64_t> all;
    for (const DatasetPtr& part : split(numbered(n), {0.8, 0.15, 0.05}, 7))
      for (const std::int64_t number : numbers_in(*part)) all.push_back(number);
    std::ranges::sort(all);
    std::vector<std::int64_t> wanted(static_cast<std::size_t>(n));
    std::iota(wanted.begin(), wanted.end(), 0);
    EXPECT_EQ(all, wanted);
  }
}

TEST(Split, SizesAreTheFractionsByLargestRemainder) {
  EXPECT_EQ(sizes_of(10, {0.9, 0.1}), (std::vector<std::int64_t>{9, 1}));
  EXPECT_EQ(sizes_of(10, {0.55, 0.45}), (std::vector<std::int64_t>{6, 4}));
  EXPECT_EQ(sizes_of(7, {0.5, 0.25, 0.25}), (std::vector<std::int64_t>{3, 2, 2}));
  EXPECT_EQ(sizes_of(10, {0.1, 0.2, 0.7}), (std::vector<std::int64_t>{1, 2, 7}));
  EXPECT_EQ(sizes_of(3, {1. / 3, 1. / 3, 1. / 3}), (std::vector<std::int64_t>{1, 1, 1}));
  EXPECT_EQ(sizes_of(100, {0.25}), (std::vector<std::int64_t>{25}));
  EXPECT_EQ(sizes_of(100, {0, 1}), (std::vector<std::int64_t>{0, 100}));
  EXPECT_EQ(sizes_of(5, {}), (std::vector<std::int64_t>{}));
}

TEST(Split, WhichPartAnExampleIsInFollowsFromTheSeed) {
  const auto first = [](std::uint64_t seed) { return numbers_in(*split(numbered(200), {0.5, 0.5}, seed).front()); };
  EXPECT_EQ(first(1), first(1));
  EXPECT_NE(first(1), first(2));
  const auto parts = split(numbered(200), {0.5, 0.5}, 1), others = split(numbered(200), {0.5, 0.5}, 2);
  EXPECT_NE(parts[0]->fingerprint(), parts[1]->fingerprint());
  EXPECT_NE(parts[0]->fingerprint(), others[0]->fingerprint());
  EXPECT_EQ(parts[0]->length(3), numbers_in(*parts[0])[3] % 7 + 1);
  EXPECT_NE(error_of([&] { parts[0]->example(100); }), "");
}

TEST(Split, RefusesFractionsThatAreNone) {
  for (const std::vector<double>& wrong : {std::vector<double>{-0.1, 1}, {0.6, 0.5}, {1.1}, {std::nan("")}})
    EXPECT_NE(error_of([&] { split(numbered(10), wrong, 1); }), "");
  EXPECT_EQ(error_of([] { split(numbered(10), std::vector<double>(10, 0.1), 1); }), "");
  EXPECT_EQ(error_of([] { split(numbered(10), {0.5, 0.5 + 5e-10}, 1); }), "") << "is rounding";
  EXPECT_NE(error_of([] { split(numbered(10), {0.5, 0.5 + 2e-9}, 1); }), "");
}

// x = i, and folds a, b, c, a, b, ... as a text, and 0, 1, 2 as numbers.
DatasetPtr folded(std::int64_t n) {
  std::vector<Example> examples;
  for (std::int64_t i = 0; i < n; ++i) {
    Example example;
    example.set("x", i)
        .set("fold", std::string(1, static_cast<char>('a' + i % 3)))
        .set("whole", i % 3)
        .set("half", 0.5 * static_cast<double>(i % 3));
    examples.push_back(std::move(example));
  }
  return std::make_shared<testing::ListDataset>(std::move(examples));
}

TEST(SplitByColumn, GivesEveryExampleToThePartThatNamesItsValue) {
  for (const std::int64_t n : {3, 10, 9000}) {
    const DatasetPtr data = folded(n);
    const ColumnParts parts = parts_by_column(*data, "fold", {{"c"}, {}, {"a"}});
    ASSERT_EQ(parts.parts.size(), 3u);
    std::vector<std::int64_t> wanted[3];
    for (std::int64_t i = 0; i < n; ++i) wanted[i % 3].push_back(i);
    EXPECT_EQ(parts.parts[0], wanted[2]);
    EXPECT_EQ(parts.parts[1], std::vector<std::int64_t>());
    EXPECT_EQ(parts.parts[2], wanted[0]);
    EXPECT_EQ(parts.rest, wanted[1]);
    EXPECT_EQ(numbers_in(*chosen(data, parts.rest)), wanted[1]);
  }
}

TEST(SplitByColumn, ReadsNumbersAsTheyAreWritten) {
  const std::vector<std::int64_t> second = {1, 4, 7}, third = {2, 5, 8};
  EXPECT_EQ(parts_by_column(*folded(9), "whole", {{"1"}}).parts[0], second);
  EXPECT_EQ(parts_by_column(*folded(9), "whole", {{"1.0"}}).parts[0], second);
  EXPECT_EQ(parts_by_column(*folded(9), "half", {{"0.5"}}).parts[0], second);
  EXPECT_EQ(parts_by_column(*folded(9), "half", {{"1"}}).parts[0], third);
}

TEST(SplitByColumn, RefusesWhatIsNotThere) {
  const auto said = [](const std::string& column, const std::vector<std::vector<std::string>>& values) {
    return error_of([&] { parts_by_column(*folded(9), column, values); });
  };
  EXPECT_NE(said("flod", {{"a"}}).find("has no field 'flod'; did you mean 'fold'?"), std::string::npos);
  EXPECT_EQ(said("fold", {{"a"}, {"d"}}), "no row has 'd' in the column 'fold', which has a, b, c");
  EXPECT_EQ(said("whole", {{"3"}}), "no row has '3' in the column 'whole', which has 0, 1, 2");
  EXPECT_EQ(said("fold", {{"a"}, {"b", "a"}}), "the value 'a' is named twice; a row belongs to one part");
  EXPECT_EQ(said("whole", {{"1"}, {"1.0"}}), "the value '1.0' is named twice; a row belongs to one part");
  EXPECT_EQ(error_of([] { parts_by_column(*numbered(9), "ids", {{"1"}}); }),
            "example 0 (from 0 on): field 'ids' is whole numbers (1), and a split goes by single values");
  EXPECT_NE(error_of([] {
              chosen(numbered(3), {0, 3});
            }).find("example 3 is outside the data set's 3"),
            std::string::npos);
}

TEST(SplitByColumn, ChosenExamplesHaveAFingerprintOfTheirNumbers) {
  const DatasetPtr data = numbered(9);
  EXPECT_EQ(chosen(data, {1, 2})->fingerprint(), chosen(data, {1, 2})->fingerprint());
  EXPECT_NE(chosen(data, {1, 2})->fingerprint(), chosen(data, {2, 1})->fingerprint());
  EXPECT_EQ(chosen(data, {8, 3})->length(1), data->length(3));
}

TEST(SplitByColumn, ListsEightValuesOfThoseThatItHasSeen) {
  // Values in the order of the examples, which are sorted in the list.
  const auto said = [](int first, int last) {
    std::vector<Example> examples;
    for (int i = first; i != last; i += first < last ? 1 : -1)
      examples.push_back(Example().set("v", std::to_string(1000 + i)));
    return error_of([&] { parts_by_column(testing::ListDataset(examples), "v", {{"x"}}); });
  };
  const std::string begin = "no row has 'x' in the column 'v', which has ";
  EXPECT_EQ(said(0, 7), begin + "1000, 1001, 1002, 1003, 1004, 1005, 1006");
  EXPECT_EQ(said(0, 8), begin + "1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007");
  EXPECT_EQ(said(0, 9), begin + "1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, ...");
  EXPECT_EQ(said(0, 0), begin + "nothing");
  // A hundred are kept.
  EXPECT_TRUE(said(99, -1).starts_with(begin + "1000, 1001")) << said(99, -1);
  EXPECT_TRUE(said(100, -1).starts_with(begin + "1001, 1002")) << said(100, -1);
}

}  // namespace
}  // namespace keel
