#include "keel/tokenizers/pattern.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/tokenizers/known_expressions.h"
#include "keel/tokenizers/oniguruma.h"

namespace keel {
namespace {

// At least one character of each class that an expression names, all of them older than any Oniguruma that is in use.
const std::vector<std::string>& alphabet() {
  static const std::vector<std::string> all = {
      "a",      "b",      "s",      "S",      "t",      "T",      "l",      "L",      "e",          "R",
      "v",      "m",      "D",      "Z",      "'",      "'",      "'s",     "'Ll",    "'\u017f",    "\u00e9",
      "\u0434", "\u0414", "\u01c5", "\u02b0", "\u00aa", "\u6f22", "\u9fa5", "\u9fa6", "\u3042",     "\u30fc",
      "\u3000", "\u0301", "\u0903", "\u20dd", "0",      "7",      "\u00b2", "\u00bd", "\u2167",     "\u0663",
      " ",      " ",      " ",      "  ",     "\t",     "\n",     "\r",     "\r\n",   "\u0085",     "\u00a0",
      "\u2028", ".",      "/",      "$",      "_",      "-",      "\u2026", "\u20ac", "\U0001f600", "\u200c",
      "\u200d", "\u24b6", "\ufeff", "\u00ad", "\x01",   "\u203f", "\u0378"};
  return all;
}

std::string random_text(std::mt19937& random) {
  std::string text;
  for (std::size_t left = random() % 14; left > 0; --left) {
    const std::string& each = alphabet()[random() % alphabet().size()];
    for (std::size_t times = random() % 8 == 0 ? 3 : 1; times > 0; --times) text += each;
  }
  return text;
}

std::vector<TextSpan> matches(const Pattern& pattern, std::string_view text) {
  std::vector<TextSpan> found;
  pattern.find_all(text, found);
  return found;
}

std::string message_of(const std::string& expression) {
  try {
    patterns::expression(expression);
  } catch (const Error& error) { return error.what(); }
  return "";
}

TEST(KnownExpressions, MatchWhatOnigurumaMatches) {
  if (oniguruma_pattern("a") == nullptr) GTEST_SKIP() << "this build has no Oniguruma";
  std::mt19937 random(1);
  for (const KnownExpression& each : known_expressions()) {
    const PatternPtr reference = oniguruma_pattern(each.text);
    for (int i = 0; i < 4000; ++i) {
      const std::string text = random_text(random);
      const std::vector<TextSpan> expected = matches(*reference, text);
      ASSERT_EQ(matches(*each.pattern, text), expected) << each.text << " in " << ::testing::PrintToString(text);
      if (expected.empty()) continue;
      const TextSpan one = expected[random() % expected.size()];
      ASSERT_EQ(each.pattern->find(text, one.begin), one) << each.text << " in " << ::testing::PrintToString(text);
    }
  }
}

TEST(KnownExpressions, AreFoundByTheirTextAlone) {
  for (const KnownExpression& each : known_expressions()) EXPECT_EQ(patterns::expression(each.text), each.pattern);
  EXPECT_EQ(find_known_expression("\\p{L}"), nullptr);
  EXPECT_EQ(patterns::gpt2(), known_expressions().front().pattern);
}

TEST(KnownExpressions, EndWhereTheTextEndsInsideACharacter) {
  for (const KnownExpression& each : known_expressions())
    for (const char* text : {"a\xe6", "a\xf0\x9f\x99", "\xc3", " \xe6\xbc", "\xf7\xbf\xbf\xbf"})
      for (const TextSpan match : matches(*each.pattern, text)) EXPECT_LE(match.end, std::string_view(text).size());
}

TEST(Patterns, OfATextFindItFromLeftToRight) {
  EXPECT_EQ(matches(*patterns::literal("aa"), "aaaba"), (std::vector<TextSpan>{{0, 2}}));
  EXPECT_EQ(matches(*patterns::literal("aa"), "aabaa"), (std::vector<TextSpan>{{0, 2}, {3, 5}}));
  EXPECT_EQ(patterns::literal("b")->find("abab", 2), (TextSpan{3, 4}));
  EXPECT_EQ(patterns::literal("b")->find("abab", 4), std::nullopt);
}

TEST(Patterns, ThatMatchNothingDoSoBetweenCharactersAndNotRightBehindAMatch) {
  EXPECT_EQ(matches(*patterns::literal(""), "a\u00e9b"), (std::vector<TextSpan>{{0, 0}, {1, 1}, {3, 3}, {4, 4}}));
  if (oniguruma_pattern("a") == nullptr) GTEST_SKIP() << "this build has no Oniguruma";
  EXPECT_EQ(matches(*patterns::expression("x*"), "axxb"), (std::vector<TextSpan>{{0, 0}, {1, 3}, {4, 4}}));
}

TEST(Patterns, OfMalformedExpressionsAreErrorsWithTheReason) {
  if (oniguruma_pattern("a") == nullptr) GTEST_SKIP() << "this build has no Oniguruma";
  const std::string message = message_of("(a");
  EXPECT_NE(message.find("'(a'"), std::string::npos) << message;
  EXPECT_NE(message.find("unmatched parenthesis"), std::string::npos) << message;
}

TEST(Patterns, OfHostileExpressionsAreGivenUp) {
  if (oniguruma_pattern("a") == nullptr) GTEST_SKIP() << "this build has no Oniguruma";
  const std::string text = std::string(40, 'a') + "!";
  int given_up = 0;
  for (const char* expression : {"(a|a|b)*$c", "(a*)*c", "(a|aa)+c", "((a?){30}){30}c"}) {
    const PatternPtr pattern = patterns::expression(expression);
    std::vector<TextSpan> found;
    EXPECT_NO_THROW(pattern->find_all("b", found));
    try {
      pattern->find_all(text, found);
    } catch (const Error& error) {
      ++given_up;
      const std::string message = error.what();
      EXPECT_NE(message.find(expression), std::string::npos) << message;
      EXPECT_NE(message.find("limit"), std::string::npos) << message;
    }
  }
  EXPECT_GT(given_up, 0);
}

TEST(Patterns, WithoutOnigurumaSayWhichExpressionsAreKnown) {
  if (oniguruma_pattern("a") != nullptr) GTEST_SKIP() << "this build has Oniguruma";
  const std::string message = message_of("a+b");
  EXPECT_NE(message.find("'a+b'"), std::string::npos) << message;
  for (const KnownExpression& each : known_expressions())
    EXPECT_NE(message.find(each.text), std::string::npos) << message;
}

}  // namespace
}  // namespace keel
