// What the task masked_language masks.

#include "keel/tasks/masking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "keel/data/token_batch.h"
#include "keel/runtime/file.h"
#include "keel/tasks/special_tokens.h"
#include "keel/tokenizers/find_tokenizer.h"
#include "keel/tokenizers/tokenizer_files.h"
#include "tests/binomial.h"
#include "tests/data/list_dataset.h"
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

namespace keel {
namespace {

using testing::error_of;
using testing::expect_binomial;
using testing::ListDataset;
using testing::TemporaryFolder;

constexpr std::int64_t kSome = 90;  // tokens of a row
constexpr std::int32_t kMaskNumber = 3, kFront = 1, kBack = 2;

// Numbers from 10 to 49, with some special ones among them.
std::vector<std::int64_t> some_tokens(std::uint64_t draw, std::int64_t count = kSome) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t word = stream_word(key_of(7, "tokens"), draw * 1000 + static_cast<std::uint64_t>(i));
    tokens.push_back(word % 13 == 0 ? 4 : 10 + word / 13 % 40);
  }
  return tokens;
}
// Words of 1 to 5 tokens; the first one began before.
std::vector<std::int64_t> some_beginnings(std::uint64_t draw) {
  std::vector<std::int64_t> begins;
  for (std::int64_t i = 0; i < kSome; ++i)
    begins.push_back(i > 0 && stream_word(key_of(8, "words"), draw * 1000 + static_cast<std::uint64_t>(i)) % 3 == 0);
  return begins;
}

MaskingOptions masking_options(Masking masking = Masking::tokens) {
  MaskingOptions options{.masking = masking,
                         .mask_token = kMaskNumber,
                         .vocabulary = 50,
                         .around = {.before = {kFront}, .behind = {kBack}},
                         .is_special = std::vector<bool>(50)};
  for (const std::size_t special : {0, 1, 2, 3, 4}) options.is_special[special] = true;
  return options;
}

TEST(Masking, ChoosesTokensByTheProbabilityAndChangesThemByTheShares) {
  const MaskingOptions options = masking_options();
  const PhiloxKey key = key_of(1, "masks");
  double possible = 0, chosen = 0, masked = 0, other = 0, special_now = 0;
  for (std::uint64_t draw = 0; draw < 2000; ++draw) {
    const std::vector<std::int64_t> tokens = some_tokens(draw);
    const MaskedRow row = masked_row(tokens, {}, options, key, draw);
    ASSERT_EQ(std::ssize(row.inputs), kSome + 2);
    ASSERT_EQ(row.labels.size(), row.inputs.size());
    EXPECT_TRUE(row.inputs.front() == kFront && row.inputs.back() == kBack);
    EXPECT_TRUE(row.labels.front() == kIgnoreTarget && row.labels.back() == kIgnoreTarget);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::int64_t before = tokens[i], now = row.inputs[i + 1], label = row.labels[i + 1];
      possible += before == 4 ? 0 : 1;
      if (label == kIgnoreTarget) {
        ASSERT_EQ(now, before);
        continue;
      }
      ASSERT_EQ(label, before);
      ASSERT_NE(before, 4) << "a special token";
      ++chosen;
      masked += now == kMaskNumber ? 1 : 0;
      other += now != kMaskNumber && now != before ? 1 : 0;
      special_now += now != kMaskNumber && now < 5 ? 1 : 0;
    }
  }
  expect_binomial(chosen, possible, 0.15, "chosen");
  // One of ten is any of 50: now and then the mask token, or the same again.
  expect_binomial(masked, chosen, 0.8 + 0.1 / 50, "masked");
  expect_binomial(other, chosen, 0.1 * 48 / 50, "others");
  expect_binomial(special_now, chosen, 0.1 * 4 / 50, "special now");
}

// Words of a row as [begin, end) in it, special tokens left out.
std::vector<std::pair<std::size_t, std::size_t>> words_of(const std::vector<std::int64_t>& tokens,
                                                          const std::vector<std::int64_t>& begins) {
  std::vector<std::pair<std::size_t, std::size_t>> words;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == 4) continue;
    if (i > 0 && tokens[i - 1] != 4 && begins[i] == 0) words.back().second = i + 2;
    else words.emplace_back(i + 1, i + 2);
  }
  return words;
}

TEST(Masking, OfWordsChoosesAllOfAWordOrNothing) {
  double words = 0, chosen = 0;
  for (std::uint64_t draw = 0; draw < 1000; ++draw) {
    const std::vector<std::int64_t> tokens = some_tokens(draw), begins = some_beginnings(draw);
    const MaskedRow row = masked_row(tokens, begins, masking_options(Masking::words), key_of(1, "masks"), draw);
    for (const auto& [begin, end] : words_of(tokens, begins)) {
      ++words;
      const bool is_chosen = row.labels[begin] != kIgnoreTarget;
      chosen += is_chosen ? 1 : 0;
      for (std::size_t i = begin; i < end; ++i)
        ASSERT_EQ(row.labels[i] != kIgnoreTarget, is_chosen) << draw << ' ' << i;
    }
  }
  expect_binomial(chosen, words, 0.15, "words");
}

TEST(Masking, OfABudgetChoosesWholeWordsUntilNoOtherFits) {
  std::set<std::int64_t> counts;
  for (std::uint64_t draw = 0; draw < 500; ++draw) {
    const std::vector<std::int64_t> tokens = some_tokens(draw), begins = some_beginnings(draw);
    MaskingOptions options = masking_options(Masking::budget);
    options.probability = 0.05 + 0.001 * static_cast<double>(draw % 100);
    const MaskedRow row = masked_row(tokens, begins, options, key_of(1, "masks"), draw);
    const auto most = static_cast<std::int64_t>(std::max(1.0, std::nearbyint((kSome + 2) * options.probability)));
    const std::int64_t all = std::ssize(row.labels) - std::ranges::count(row.labels, kIgnoreTarget);
    EXPECT_LE(all, most);
    counts.insert(most - all);
    for (const auto& [begin, end] : words_of(tokens, begins)) {
      const bool is_chosen = row.labels[begin] != kIgnoreTarget;
      for (std::size_t i = begin; i < end; ++i) ASSERT_EQ(row.labels[i] != kIgnoreTarget, is_chosen);
      EXPECT_TRUE(is_chosen || all + static_cast<std::int64_t>(end - begin) > most) << "a word that would have fitted";
    }
  }
  EXPECT_TRUE(counts.contains(0));
  MaskingOptions least = masking_options(Masking::budget);
  least.probability = 1e-9;
  const std::vector<std::int64_t> one = {20, 21};
  const MaskedRow row = masked_row(one, std::vector<std::int64_t>{1, 1}, least, key_of(1, "masks"), 0);
  EXPECT_EQ(std::ranges::count(row.labels, kIgnoreTarget), 3) << "at least one";
}

DatasetPtr masked_examples(std::int64_t n) {
  std::vector<Example> examples;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::vector<std::int64_t> tokens = some_tokens(static_cast<std::uint64_t>(i), 20 + i % 9);
    examples.push_back(Example().set("input_ids", Integers{{std::ssize(tokens)}, tokens}));
  }
  return std::make_shared<ListDataset>(std::move(examples));
}

Batch masked_batch(bool by_example, std::int64_t first_sample, std::vector<std::int64_t> indices, std::int64_t length,
                   std::uint64_t seed = 5) {
  const DatasetPtr data = masked_examples(30);
  std::vector<CollatedRow> rows;
  std::vector<std::int64_t> samples;
  for (const std::int64_t i : indices) {
    samples.push_back(first_sample + std::ssize(samples));
    rows.push_back({data->example(i), i, samples.back(), 0});
  }
  const Context host = Context::create();
  Batch batch(from_values(host, samples, {std::ssize(samples)}), indices);
  MaskingOptions options = masking_options();
  options.length = length;
  masked_tokens(options, by_example)(rows, {host, seed}, batch);
  return batch;
}

std::vector<std::int32_t> values_in(const Batch& batch, std::string_view field) {
  return batch[field].to_vector<std::int32_t>();
}

TEST(Masking, OfABatchIsThatOfItsRowsAlone) {
  const Batch whole = masked_batch(false, 40, {3, 9, 3, 27}, 40);
  std::vector<std::int32_t> inputs, labels;
  double tokens = 0;
  for (std::int64_t row = 0; row < 4; ++row) {
    const Batch alone =
        masked_batch(false, 40 + row, {std::vector<std::int64_t>{3, 9, 3, 27}[static_cast<std::size_t>(row)]}, 40);
    for (const std::int32_t value : values_in(alone, kInputIds)) inputs.push_back(value);
    for (const std::int32_t value : values_in(alone, kLabels)) labels.push_back(value);
    tokens += alone.weight(kTokenWeight);
  }
  EXPECT_EQ(values_in(whole, kInputIds), inputs);
  EXPECT_EQ(values_in(whole, kLabels), labels);
  EXPECT_EQ(whole.weight(kTokenWeight), tokens);
  EXPECT_EQ(whole["lengths"].to_vector<std::int64_t>(), (std::vector<std::int64_t>{25, 22, 25, 22}));
  const std::vector<std::int32_t> first(labels.begin(), labels.begin() + 40),
      third(labels.begin() + 80, labels.begin() + 120);
  EXPECT_NE(first, third) << "the same example at another sample";
  EXPECT_NE(values_in(masked_batch(false, 40, {3, 9, 3, 27}, 40, 6), kLabels), labels) << "another seed";
}

TEST(Masking, ByExamplesIsTheSameInEveryEvaluation) {
  const Batch first = masked_batch(true, 0, {3, 9, 4}, 0), again = masked_batch(true, 100, {3, 9, 4}, 0);
  EXPECT_EQ(values_in(first, kInputIds), values_in(again, kInputIds));
  EXPECT_EQ(values_in(first, kLabels), values_in(again, kLabels));
  EXPECT_EQ(first[kInputIds].dim(1), 26) << "as long as the longest";
  EXPECT_NE(error_of([] {
              masked_batch(true, 0, {3}, 10);
            }).find("example 3 has 25 tokens with special ones, more than the 10 of a row"),
            std::string::npos);
}

TEST(Masking, KnowsATokenizersTemplateAndItsSpecialTokens) {
  const TemporaryFolder place;
  write_text_file(place / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsea\n##shore\n");
  const TokenizerPtr tokenizer = load_tokenizer(place / "vocab.txt");
  const TextTemplate around = template_of(*tokenizer);
  EXPECT_EQ(around.before, std::vector<std::int32_t>{2});
  EXPECT_EQ(around.behind, std::vector<std::int32_t>{3});
  EXPECT_EQ(special_tokens(*tokenizer), (std::vector<bool>{true, true, true, true, true, false, false}));
  EXPECT_EQ(first_token_of(*tokenizer, {"<mask>", "[MASK]"}), 4);
  EXPECT_FALSE(first_token_of(*tokenizer, {"<mask>"}));
  const TokenizerPtr bytes = find_tokenizer("byte", "");
  EXPECT_EQ(template_of(*bytes).size(), 0);
  EXPECT_EQ(std::ranges::count(special_tokens(*bytes), true), 0);
  EXPECT_NE(error_of([] { (void)parse_masking("all"); }).find("'all' is no way of masking: tokens, words or budget"),
            std::string::npos);
}

}  // namespace
}  // namespace keel
