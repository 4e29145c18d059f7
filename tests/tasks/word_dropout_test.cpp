// Words that training hides.

#include "keel/tasks/word_dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "keel/data/token_batch.h"
#include "keel/tokenizers/find_tokenizer.h"
#include "keel/tokenizers/tokenizer_files.h"
#include "tests/error_of.h"
#include "tests/tasks/label_tasks.h"

namespace keel {
namespace {

using testing::error_of;
using testing::label_task;
using testing::TemporaryFolder;

constexpr std::int64_t kUnread = 1;  // [UNK] of write_word_pieces()

std::vector<std::int64_t> hidden_row(std::int64_t tokens, double share, std::uint64_t draw) {
  std::vector<std::int64_t> row;
  for (std::int64_t i = 0; i < tokens; ++i) row.push_back(i % 5 == 0 ? 2 : 10 + i % 30);
  const WordDropout options = {.share = share, .stand_in = 1, .is_special = {true, true, true, true}};
  hide_words(row, options, key_of(3, "word dropout"), draw);
  return row;
}

TEST(WordDropout, HidesItsShareOfTheTokensAndNoSpecialOne) {
  for (const double share : {0.0, 0.1, 0.5, 0.9}) {
    std::int64_t hidden = 0, ordinary = 0;
    for (std::uint64_t draw = 0; draw < 200; ++draw) {
      const std::vector<std::int64_t> row = hidden_row(100, share, draw);
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (i % 5 == 0) {
          EXPECT_EQ(row[i], 2) << "a special token";
          continue;
        }
        ++ordinary;
        hidden += row[i] == kUnread ? 1 : 0;
        EXPECT_TRUE(row[i] == kUnread || row[i] == 10 + static_cast<std::int64_t>(i) % 30);
      }
    }
    const auto of = static_cast<double>(ordinary);
    EXPECT_NEAR(static_cast<double>(hidden) / of, share, 6 * std::sqrt(share * (1 - share) / of));
  }
  EXPECT_EQ(hidden_row(50, 0.5, 7), hidden_row(50, 0.5, 7));
  EXPECT_NE(hidden_row(50, 0.5, 7), hidden_row(50, 0.5, 8)) << "another sample";
  EXPECT_NE(hidden_row(50, 0.5, 7), hidden_row(50, 0.5, 7 + (std::uint64_t{1} << 40)));
}

// All tokens that a source's first batches have, in order.
std::vector<std::int32_t> tokens_of(const BatchSource& source, std::int64_t steps) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t step = 0; step < steps; ++step)
    for (const std::int32_t each : source.load_all(step)[kInputIds].to_vector<std::int32_t>()) tokens.push_back(each);
  return tokens;
}

TEST(WordDropout, IsOfTrainingAlone) {
  const TemporaryFolder place;
  testing::write_word_pieces(place);
  std::string table = "text,label\n";
  for (int i = 0; i < 40; ++i) table += i % 2 == 0 ? "good films what a film,yes\n" : "bad film what a film,no\n";
  write_text_file(place / "v.csv", table);
  const auto data = [&](const char* share) {
    return label_task(place, "sequence_classification",
                      {{"data.path", place / "v.csv"}, {"data.validation", "0.2"}, {"task.word_dropout", share}})
        ->data();
  };
  const Data plain = data("0"), hiding = data("0.4");
  EXPECT_EQ(tokens_of(*plain.validation.front().source, 1), tokens_of(*hiding.validation.front().source, 1));
  const std::vector<std::int32_t> all = tokens_of(*plain.training, 8), some = tokens_of(*hiding.training, 8);
  ASSERT_EQ(all.size(), some.size());
  std::int64_t hidden = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] == some[i]) continue;
    EXPECT_EQ(some[i], kUnread);
    EXPECT_GT(all[i], 3) << "special tokens stay";
    ++hidden;
  }
  EXPECT_GT(hidden, 40);
  EXPECT_EQ(tokens_of(*hiding.training, 8), some) << "the same again";
  const std::int64_t epoch = 4;  // steps of 32 examples
  const std::vector<std::int32_t> first = tokens_of(*hiding.training, epoch);
  EXPECT_NE(std::vector<std::int32_t>(some.begin() + std::ssize(first), some.end()), first) << "another epoch";
}

TEST(WordDropout, TakesTheTokenThatMasksBeforeTheUnknownOne) {
  const TemporaryFolder place;
  write_text_file(place / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsea\n");
  EXPECT_EQ(word_dropout(*load_tokenizer(place / "vocab.txt"), 0.1).stand_in, 4);
  write_text_file(place / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nsea\n");
  EXPECT_EQ(word_dropout(*load_tokenizer(place / "vocab.txt"), 0.1).stand_in, 1);
  EXPECT_NE(error_of([] {
              (void)word_dropout(*find_tokenizer("byte", ""), 0.1);
            }).find("task.word_dropout: the tokenizer has no token that could stand for a hidden one"),
            std::string::npos);
}

}  // namespace
}  // namespace keel
