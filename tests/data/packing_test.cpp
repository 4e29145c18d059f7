#include "keel/data/packing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <numeric>
#include <random>

#include "keel/data/first_fit.h"
#include "keel/data/token_batch.h"
#include "tests/data/list_dataset.h"
#include "tests/error_of.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::error_of;

// Document i has the tokens 1000 i, 1000 i + 1, ...
Example document(std::int64_t i, std::int64_t length) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(length));
  std::iota(tokens.begin(), tokens.end(), 1000 * i);
  return Example().set("input_ids", Integers{{length}, tokens});
}

DatasetPtr documents(const std::vector<std::int64_t>& lengths) {
  std::vector<Example> examples;
  for (const std::int64_t length : lengths) examples.push_back(document(std::ssize(examples), length));
  return std::make_shared<testing::ListDataset>(std::move(examples));
}

const std::vector<std::int64_t>& values(const Example& row, std::string_view field) {
  return std::get<Integers>(row[field]).values;
}

std::vector<std::int64_t> random_lengths(std::size_t count, std::int64_t most, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<std::int64_t> lengths(count);
  for (std::int64_t& length : lengths) length = static_cast<std::int64_t>(engine() % static_cast<unsigned>(most + 1));
  return lengths;
}

TEST(FirstFit, PutsTheLongestFirstIntoTheFirstRowWithRoom) {
  EXPECT_EQ(first_fit(std::vector<std::int64_t>{2, 6, 3, 7, 1, 8}, 10), (std::vector<std::int64_t>{0, 2, 1, 1, 2, 0}));
  EXPECT_TRUE(first_fit({}, 10).empty());
  EXPECT_EQ(error_of([] { first_fit(std::vector<std::int64_t>{11}, 10); }),
            "a thing of length 11 does not fit in a row of 10");
}

TEST(FirstFit, EqualsTheSearchOfEveryRow) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::vector<std::int64_t> lengths = random_lengths(5 * seed, 32, seed);
    std::vector<std::size_t> order(lengths.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return lengths[a] > lengths[b]; });
    std::vector<std::int64_t> wanted(lengths.size()), used(lengths.size() + 1);
    for (const std::size_t i : order) {
      std::size_t row = 0;
      while (used[row] + lengths[i] > 32) ++row;
      used[row] += lengths[i];
      wanted[i] = static_cast<std::int64_t>(row);
    }
    EXPECT_EQ(first_fit(lengths, 32), wanted) << seed;
  }
}

TEST(Pack, LaysDocumentsOutInARow) {
  const DatasetPtr rows = pack(documents({3, 0, 2}), {.length = 7, .padding = 9});
  ASSERT_EQ(rows->size(), 1);
  const Example row = rows->example(0);
  EXPECT_EQ(values(row, "input_ids"), (std::vector<std::int64_t>{0, 1, 2, 2000, 2001, 9, 9}));
  EXPECT_EQ(values(row, "labels"), (std::vector<std::int64_t>{1, 2, -100, 2001, -100, -100, -100}));
  EXPECT_EQ(values(row, "documents"), (std::vector<std::int64_t>{0, 0, 0, 1, 1, -1, -1}));
  EXPECT_EQ(values(row, "positions"), (std::vector<std::int64_t>{0, 1, 2, 0, 1, 0, 0}));
  EXPECT_EQ(rows->length(0), 7);
}

TEST(Pack, CutsOnlyDocumentsThatAreLongerThanARowAndLosesNoTarget) {
  const DatasetPtr rows = pack(documents({10, 2}), {.length = 4});
  ASSERT_EQ(rows->size(), 3);
  EXPECT_EQ(values(rows->example(1), "input_ids"), (std::vector<std::int64_t>{4, 5, 6, 7}));
  EXPECT_EQ(values(rows->example(1), "labels"), (std::vector<std::int64_t>{5, 6, 7, 8}));
  EXPECT_EQ(values(rows->example(1), "positions"), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(values(rows->example(2), "input_ids"), (std::vector<std::int64_t>{8, 9, 1000, 1001}));
  EXPECT_EQ(values(rows->example(2), "labels"), (std::vector<std::int64_t>{9, -100, 1001, -100}));
}

TEST(Pack, HasEveryTokenInOnePlaceAndKeepsDocumentsWhole) {
  for (const std::int64_t window : {1, 7, 64, 1000}) {
    const std::vector<std::int64_t> lengths = random_lengths(300, 40, static_cast<unsigned>(window));
    const DatasetPtr rows = pack(documents(lengths), {.length = 32, .padding = -7, .window = window});
    std::map<std::int64_t, int> seen;
    std::map<std::int64_t, std::int64_t> targets;
    for (std::int64_t r = 0; r < rows->size(); ++r) {
      const Example row = rows->example(r);
      for (std::size_t i = 0; i < 32; ++i) {
        const std::int64_t token = values(row, "input_ids")[i], label = values(row, "labels")[i];
        const std::int64_t document = values(row, "documents")[i], position = values(row, "positions")[i];
        if (document == -1) {
          EXPECT_EQ(token, -7);
          EXPECT_EQ(label, -100);
          continue;
        }
        ++seen[token];
        if (label != -100) ++targets[label];
        const std::int64_t number = token / 1000, length = lengths[static_cast<std::size_t>(number)];
        EXPECT_EQ(position, token % 1000 % 32);
        EXPECT_EQ(label, token % 1000 + 1 < length ? token + 1 : -100);
        if (i == 0) continue;
        EXPECT_EQ(values(row, "documents")[i - 1] + (position == 0 ? 1 : 0), document);
        EXPECT_TRUE(position == 0 || values(row, "input_ids")[i - 1] == token - 1);
      }
    }
    std::int64_t tokens = 0, learnt = 0;
    for (const std::int64_t length : lengths) {
      tokens += length;
      learnt += std::max<std::int64_t>(0, length - 1);
    }
    EXPECT_EQ(std::ssize(seen), tokens);
    EXPECT_EQ(std::ssize(targets), learnt);
    for (const auto& [token, count] : seen) EXPECT_EQ(count, 1) << token;
    for (const auto& [token, count] : targets) EXPECT_EQ(count, 1) << token;
  }
}

TEST(Pack, MakesSeveralRowsAsItMakesEachAndAsksBelowOnce) {
  class Counted final : public testing::ListDataset {
   public:
    using ListDataset::ListDataset;
    std::vector<Example> examples(std::span<const std::int64_t> indices) const override {
      ++calls;
      return ListDataset::examples(indices);
    }
    mutable std::atomic<int> calls = 0;
  };
  std::vector<Example> examples;
  for (const std::int64_t length : random_lengths(60, 30, 5))
    examples.push_back(document(std::ssize(examples), length));
  const auto below = std::make_shared<const Counted>(examples);
  const DatasetPtr rows = pack(below, {.length = 12, .window = 16});
  ASSERT_GT(rows->size(), 20);
  const std::vector<std::int64_t> asked = {20, 3, 3, 0, rows->size() - 1, 19};
  std::vector<Example> alone;
  for (const std::int64_t i : asked) alone.push_back(rows->example(i));
  below->calls = 0;
  EXPECT_EQ(rows->examples(asked), alone);
  EXPECT_EQ(below->calls, 1);
  EXPECT_TRUE(rows->examples({}).empty());
}

// A batch of rows of long documents would else hold all of them, and those that are cut once for each of their rows.
TEST(Pack, HoldsALongDocumentOnceAndFewOfThemAtATime) {
  class Watched final : public testing::ListDataset {
   public:
    using ListDataset::ListDataset;
    std::vector<Example> examples(std::span<const std::int64_t> indices) const override {
      asked.emplace_back(indices.begin(), indices.end());
      return ListDataset::examples(indices);
    }
    mutable std::vector<std::vector<std::int64_t>> asked;
  };
  constexpr std::int64_t kLong = (1 << 20) + 5;
  std::vector<Example> examples;
  for (const std::int64_t length : {kLong, std::int64_t{3}, std::int64_t{2}, kLong})
    examples.push_back(document(std::ssize(examples), length));
  const auto below = std::make_shared<const Watched>(examples);
  const DatasetPtr rows = pack(below, {.length = 1 << 19});
  ASSERT_EQ(rows->size(), 5);
  std::vector<std::int64_t> all = {0, 1, 2, 3, 4, 0};
  std::vector<Example> alone;
  for (const std::int64_t i : all) alone.push_back(rows->example(i));
  below->asked.clear();
  EXPECT_TRUE(rows->examples(all) == alone);
  EXPECT_EQ(below->asked, (std::vector<std::vector<std::int64_t>>{{0}, {3}, {0, 1, 2, 3}}));
}

TEST(Pack, TakesLabelsOfTheExamples) {
  std::vector<Example> examples;
  examples.push_back(document(0, 3).set("labels", Integers{{3}, {-100, -100, 2}}));
  examples.push_back(document(1, 2).set("labels", Integers{{2}, {-100, 1001}}));
  const DatasetPtr below = std::make_shared<testing::ListDataset>(examples);
  EXPECT_EQ(values(pack(below, {.length = 5, .labels = "labels"})->example(0), "labels"),
            (std::vector<std::int64_t>{-100, 2, -100, 1001, -100}));
  examples.push_back(document(2, 2).set("labels", Integers{{1}, {7}}));
  const DatasetPtr uneven = pack(std::make_shared<testing::ListDataset>(examples), {.length = 9, .labels = "labels"});
  EXPECT_EQ(error_of([&] { uneven->example(0); }), "field 'labels' of example 2 has 1 elements, and 'input_ids' has 2");
}

TEST(Pack, GivesTheSameBatchesToAnyNumberOfRanksAndInTheMidstOfARun) {
  const Context context = testing::context();
  const auto source = [&] {
    const DatasetPtr rows = pack(documents(random_lengths(200, 20, 1)), {.length = 16, .window = 32});
    return make_source(context, rows, shuffled(rows->size(), {.rows = 4, .seed = 3, .last = LastRows::join}),
                       next_tokens());
  };
  const auto whole = source();
  const std::int64_t later = 2 * static_cast<std::int64_t>(whole->steps_per_epoch());
  for (const std::int64_t step : {std::int64_t{0}, std::int64_t{3}, later}) {
    const Batch all = whole->load_all(step);
    const auto other = source();  // which has seen nothing yet
    double tokens = 0;
    std::map<std::string, std::vector<double>> joined;
    for (std::int64_t row = 0; row < 4; ++row) {
      const Batch one = other->load(step, {row, row + 1});
      tokens += one.weight("tokens");
      for (const auto& [name, tensor] : one.fields())
        for (const double value : testing::doubles(tensor)) joined[name].push_back(value);
    }
    EXPECT_EQ(tokens, all.weight("tokens"));
    for (const auto& [name, tensor] : all.fields()) EXPECT_EQ(testing::doubles(tensor), joined[name]) << name;
  }
  EXPECT_EQ(whole->load_all(0).signature(),
            "documents i32 (rows, 16)\ninput_ids i32 (rows, 16)\nlabels i32 (rows, 16)\npositions i32 (rows, 16)\n"
            "weights rows tokens\n");
}

TEST(Pack, RefusesWhatIsNoDocument) {
  EXPECT_NE(error_of([] { pack(testing::numbered(3), {.length = 4}); }).find("has no field 'input_ids'"),
            std::string::npos);
  EXPECT_EQ(error_of([] { pack(testing::numbered(3), {.length = 4, .tokens = "x"}); }),
            "field 'x' of example 0 is a whole number; what is packed is a sequence of whole numbers");
  EXPECT_NE(error_of([] { pack(documents({1}), {}); }), "");
  EXPECT_NE(error_of([] { pack(nullptr, {.length = 1}); }), "");
  EXPECT_EQ(pack(documents({0, 0}), {.length = 3})->size(), 0);
}

TEST(Pack, TellsItsOptionsByItsFingerprint) {
  const auto of = [](const PackOptions& options) { return pack(documents({5, 6}), options)->fingerprint(); };
  const std::string first = of({.length = 8});
  EXPECT_EQ(of({.length = 8}), first);
  EXPECT_NE(of({.length = 9}), first);
  EXPECT_NE(of({.length = 8, .padding = 1}), first);
  EXPECT_NE(of({.length = 8, .window = 1}), first);
  EXPECT_NE(of({.length = 8, .labels = "input_ids"}), first);
}

TEST(Pack, TellsHowManyExamplesAreCounted) {
  std::vector<std::uint64_t> told;
  pack(documents(std::vector<std::int64_t>(5000, 1)),
       {.length = 8, .progress = [&](std::uint64_t done, std::uint64_t all) {
          EXPECT_EQ(all, 5000u);
          told.push_back(done);
        }});
  EXPECT_EQ(told, (std::vector<std::uint64_t>{4096, 5000}));
}

TEST(Pack, RefusesLengthsAndWindowsOutsideOfTheirBounds) {
  const auto refusal = [](std::int64_t length, std::int64_t window) {
    return error_of([&] { pack(documents({2, 1}), {.length = length, .window = window}); });
  };
  EXPECT_EQ(pack(documents({2, 1}), {.length = 1, .window = 1})->size(), 3);
  EXPECT_EQ(refusal(0, 1), "rows of 0 tokens cannot be packed from windows of 1 examples; both are at least 1");
  EXPECT_EQ(refusal(1, 0), "rows of 1 tokens cannot be packed from windows of 0 examples; both are at least 1");
  constexpr std::int64_t kMost = std::int64_t{1} << 32;
  EXPECT_EQ(refusal(1, kMost), "");
  EXPECT_EQ(refusal(1, kMost + 1), "a window has at most 2^32 examples, not 4294967297");
}

TEST(Pack, TellsOfADocumentThatHasChangedSinceItWasCounted) {
  class Changing final : public testing::ListDataset {
   public:
    using ListDataset::ListDataset;
    Example example(std::int64_t i) const override { return document(i, i == 1 ? length : 3); }
    mutable std::int64_t length = 3;
  };
  const auto below = std::make_shared<const Changing>(std::vector<Example>(2));
  const DatasetPtr rows = pack(below, {.length = 3});
  for (const std::int64_t length : {2, 4}) {
    below->length = length;
    EXPECT_EQ(error_of([&] { rows->example(0); }), "");
    EXPECT_EQ(
        error_of([&] { rows->example(1); }),
        concat("example 1 has ", length, " tokens, and had 3 when the rows were counted; a data set must not change"));
  }
}

}  // namespace
}  // namespace keel
