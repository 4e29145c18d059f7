#include "keel/tokenizers/valid_text.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace {

using keel::valid_utf8;
using std::string_view_literals::operator""sv;

std::string replaced(std::string_view text) {
  std::string storage;
  return std::string(valid_utf8(text, storage));
}

TEST(ValidText, IsTheTextItselfWhereItIsValid) {
  const std::string_view text = "a\0\xc3\xa9\xf0\x9f\x99\x82"sv;
  std::string storage;
  EXPECT_EQ(valid_utf8(text, storage).data(), text.data());
}

// What Python 3.11 gives for bytes(...).decode("utf-8", "replace"), with ? for U+FFFD.
TEST(ValidText, HasOneReplacementForEachMaximalPartOfACharacter) {
  const struct {
    std::string_view bytes, text;
  } cases[] = {
      {"\xff"sv, "?"},
      {"a\x80z"sv, "a?z"},
      {"\xc0\xaf"sv, "??"},
      {"\xe0\x80\xaf"sv, "???"},
      {"\xed\xa0\x80"sv, "???"},
      {"\xf0\x9f\x99"sv, "?"},
      {"\xf0\x9f\x99z"sv, "?z"},
      {"\xf4\x90\x80\x80"sv, "????"},
      {"\xe2\x82"sv, "?"},
      {"\xe2\x82\xe2\x82\xac"sv, "?\xe2\x82\xac"},
      {"\xf0\x80\x80\x41"sv, "???A"},
      {"\xc2"sv, "?"},
  };
  for (const auto& [bytes, text] : cases) {
    std::string expected;
    for (const char c : text) expected += c == '?' ? std::string("\xef\xbf\xbd") : std::string(1, c);
    EXPECT_EQ(replaced(bytes), expected);
  }
}

}  // namespace
