#include "keel/tokenizers/vocabulary.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/error_of.h"

namespace {

using keel::Vocabulary;
using keel::testing::error_of;
using Tokens = std::vector<std::pair<std::string, std::uint32_t>>;

TEST(Vocabulary, FindsEveryTokenByItsTextAndByItsNumber) {
  Tokens tokens;
  for (std::uint32_t i = 0; i < 5000; ++i) tokens.emplace_back(std::string(i % 40, 'a') + std::to_string(i), 4999 - i);
  const Vocabulary vocabulary(tokens);
  EXPECT_EQ(vocabulary.size(), 5000);
  EXPECT_EQ(vocabulary.count(), 5000);
  for (const auto& [text, number] : tokens) {
    EXPECT_EQ(vocabulary.find(text), number);
    EXPECT_EQ(vocabulary.text(number), text);
    EXPECT_EQ(vocabulary.find(text + "!"), Vocabulary::kNone);
  }
  EXPECT_EQ(vocabulary.text(5000), std::nullopt);
}

TEST(Vocabulary, HasHolesOfAnyWidth) {
  const Vocabulary vocabulary(Tokens{{"far", 2147483647}, {"", 3}, {"near", 1}});
  EXPECT_EQ(vocabulary.size(), std::int64_t{1} << 31);
  EXPECT_EQ(vocabulary.count(), 3);
  EXPECT_EQ(vocabulary.find("far"), 2147483647u);
  EXPECT_EQ(vocabulary.text(2147483647), "far");
  EXPECT_EQ(vocabulary.find(""), 3u);
  EXPECT_EQ(vocabulary.text(3), "");
  EXPECT_EQ(vocabulary.text(0), std::nullopt);
  EXPECT_EQ(vocabulary.text(2), std::nullopt);
}

TEST(Vocabulary, MayBeEmpty) {
  const Vocabulary vocabulary(Tokens{});
  EXPECT_EQ(vocabulary.size(), 0);
  EXPECT_EQ(vocabulary.find("a"), Vocabulary::kNone);
  EXPECT_EQ(vocabulary.text(0), std::nullopt);
}

TEST(Vocabulary, NamesBothWhereANumberOrATextIsThereTwice) {
  EXPECT_EQ(error_of([] {
              Vocabulary(Tokens{{"a", 0}, {"b", 1}, {"c", 0}});
            }),
            "vocabulary: \"a\" and \"c\" both have the number 0");
  EXPECT_EQ(error_of([] {
              Vocabulary(Tokens{{"a", 7}, {"b", 1}, {"a", 2}});
            }),
            "vocabulary: \"a\" has two numbers, 2 and 7");
  EXPECT_EQ(error_of([] {
              Vocabulary(Tokens{{"a", 2147483648}});
            }),
            "vocabulary: \"a\" has the number 2147483648, the largest is 2147483647");
}

}  // namespace
