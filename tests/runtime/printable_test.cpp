#include "keel/runtime/printable.h"

#include <gtest/gtest.h>

#include "keel/runtime/utf8.h"

namespace keel {
namespace {

TEST(Printable, LeavesTextAsItIsAndShowsTheRestAsNumbers) {
  for (const char* text : {"", "plain text, 'quoted'",
                           "Gr\xc3\xbc\xc3\x9f"
                           "e",
                           "\xe2\x82\xac", "\xf0\x9f\x98\x80"})
    EXPECT_EQ(printable(text), text);
  EXPECT_EQ(printable("a\nb\tc\033[2Jd\x7f"), "a\\x0ab\\x09c\\x1b[2Jd\\x7f");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\xc2\\x9b2J");  // CSI in one character
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "cod"),
            "\\xe2\\x80\\xaecod");  // turns the direction
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
}

TEST(Printable, OfEveryCharacterIsShownOnOneLineWithoutControl) {
  for (char32_t character = 0; character <= 0x10ffff; character += character < 0x3000 ? 1 : 997) {
    if (character >= 0xd800 && character <= 0xdfff) continue;
    std::string text;
    append_utf8(text, character);
    const std::string shown = printable(text);
    EXPECT_TRUE(shown == text || shown.size() == 4 * text.size());
    for (std::size_t at = 0; at < shown.size();) {
      const CodePoint point = decode_utf8(shown, at);
      ASSERT_GT(point.bytes, 0u);
      EXPECT_TRUE(point.value >= 0x20 && (point.value < 0x7f || point.value > 0x9f));
      at += point.bytes;
    }
  }
}

TEST(Printable, IsCutAndSaysByHowMuch) {
  EXPECT_EQ(printable("abcdef", 4), "abcd... (2 more bytes)");
  EXPECT_EQ(printable("abcd", 4), "abcd");
  EXPECT_LT(printable(std::string(1'000'000, '\033')).size(), 5'000u);
  EXPECT_EQ(printable_lines("a\033\nb\n"), "a\\x1b\nb\n");
}

}  // namespace
}  // namespace keel
