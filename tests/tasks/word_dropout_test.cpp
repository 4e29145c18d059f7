// Words that training hides.

#include "keel/tasks/word_dropout.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "keel/data/token_batch.h"
#include "keel/runtime/file.h"
#include "keel/tokenizers/find_tokenizer.h"
#include "keel/tokenizers/tokenizer_files.h"
#include "tests/binomial.h"
#include "tests/error_of.h"
#include "tests/tasks/label_tasks.h"

namespace keel {
namespace {

using testing::error_of;
using testing::expect_binomial;
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
    double hidden = 0, ordinary = 0;
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
    expect_binomial(hidden, ordinary, share, "hidden");
  }
  EXPECT_EQ(hidden_row(50, 0.5, 7), hidden_row(50, 0.5, 7));
  EXPECT_NE(hidden_row(50, 0.5, 7), hidden_row(50, 0.5, 8)) << "another sample";
  EXPECT_NE(hidden_row(50, 0.5, 7), hidden_row(50, 0.5, 7 + (std::uint64_t{1} << 40)));
}

using RowsByExample = std::map<std::int64_t, std::vector<std::int64_t>>;

RowsByExample rows_of_steps(const BatchSource& source, std::int64_t begin, std::int64_t end) {
  RowsByExample rows;
  for (std::int64_t step = begin; step < end; ++step)
    rows.merge(testing::rows_of_examples(source.load_all(step), kInputIds));
  return rows;
}

TEST(WordDropout, IsOfTrainingAlone) {
  const TemporaryFolder place;
  testing::write_word_pieces(place);
  std::string table = "text,label\n";
  for (int i = 0; i < 400; ++i) table += i % 2 == 0 ? "good films what a film,yes\n" : "bad film what a film,no\n";
  write_text_file(place / "v.csv", table);
  const auto data = [&](const char* share) {
    return label_task(place, "sequence_classification",
                      {{"data.path", place / "v.csv"}, {"data.validation", "0.2"}, {"task.word_dropout", share}})
        ->data();
  };
  const Data plain = data("0"), hiding = data("0.4");
  EXPECT_EQ(rows_of_steps(*plain.validation.front().source, 0, 10),
            rows_of_steps(*hiding.validation.front().source, 0, 10));
  const std::int64_t epoch = 40;  // steps of 320 examples
  const RowsByExample whole = rows_of_steps(*plain.training, 0, epoch),
                      first = rows_of_steps(*hiding.training, 0, epoch),
                      second = rows_of_steps(*hiding.training, epoch, 2 * epoch);
  ASSERT_EQ(whole.size(), 320U);
  ASSERT_EQ(first.size(), 320U);
  ASSERT_EQ(second.size(), 320U);
  double ordinary = 0, hidden = 0, hidden_once = 0;
  for (const auto& [example, row] : whole) {
    const std::vector<std::int64_t>&one = first.at(example), &other = second.at(example);
    ASSERT_EQ(one.size(), row.size());
    ASSERT_EQ(other.size(), row.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      for (const std::int64_t now : {one[i], other[i]}) EXPECT_TRUE(now == row[i] || (now == kUnread && row[i] > 3));
      if (row[i] <= 3) continue;  // special
      ++ordinary;
      hidden += one[i] == kUnread ? 1 : 0;
      hidden_once += one[i] != other[i] ? 1 : 0;
    }
  }
  expect_binomial(hidden, ordinary, 0.4, "hidden");
  expect_binomial(hidden_once, ordinary, 2 * 0.4 * 0.6, "hidden in one of two epochs");
  EXPECT_EQ(rows_of_steps(*hiding.training, 0, epoch), first) << "the same again";
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
