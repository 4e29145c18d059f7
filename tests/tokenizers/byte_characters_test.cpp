#include "keel/tokenizers/byte_characters.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace {

using keel::ByteCharacters;

TEST(ByteCharacters, AreTwoHundredFiftySixThatLeadBackToTheirBytes) {
  std::set<char32_t> seen;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t character = ByteCharacters::character(static_cast<unsigned char>(byte));
    EXPECT_EQ(ByteCharacters::byte(character), byte);
    seen.insert(character);
  }
  EXPECT_EQ(seen.size(), 256u);
  EXPECT_EQ(*seen.rbegin() + 1, ByteCharacters::kEnd);
}

TEST(ByteCharacters, KeepWhatIsVisibleAndMoveTheRest) {
  EXPECT_EQ(ByteCharacters::character('!'), U'!');
  EXPECT_EQ(ByteCharacters::character('~'), U'~');
  EXPECT_EQ(ByteCharacters::character(0xff), U'\u00ff');
  EXPECT_EQ(ByteCharacters::character(0), U'\u0100');
  EXPECT_EQ(ByteCharacters::character('\n'), U'\u010a');
  EXPECT_EQ(ByteCharacters::character(' '), U'\u0120');
  EXPECT_EQ(ByteCharacters::character(0x7f), U'\u0121');
  EXPECT_EQ(ByteCharacters::character(0xad), U'\u0143');
}

TEST(ByteCharacters, OfATextLeadBackToIt) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  std::string characters = "before";
  ByteCharacters::append(all, characters);
  EXPECT_EQ(characters.size(), 6u + 2 * 256 - 94);
  std::string bytes = "before";
  ASSERT_TRUE(ByteCharacters::append_bytes(characters, bytes));
  EXPECT_EQ(bytes, "beforebefore" + all);
}

TEST(ByteCharacters, OfATextWithOtherCharactersAreNone) {
  for (const char* text : {"a b", "\u00ad", "\u0144", "\u4e2d", "a\xff"}) {
    std::string bytes = "before";
    EXPECT_FALSE(ByteCharacters::append_bytes(text, bytes)) << text;
    EXPECT_EQ(bytes, "before");
  }
}

}  // namespace
