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
}

}  // namespace
}  // namespace keel
