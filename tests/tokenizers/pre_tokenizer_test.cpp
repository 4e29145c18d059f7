#include "keel/tokenizers/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/tokenizers/byte_characters.h"

namespace keel {
namespace {

std::vector<PreTokenizerPtr> every_pre_tokenizer() {
  using namespace pre_tokenizers;
  return {byte_level(true, true),
          byte_level(false, false),
          whitespace(),
          whitespace_split(),
          bert(),
          metaspace(U'▁', PrependScheme::always, true),
          metaspace(U'▁', PrependScheme::first, false),
          split(patterns::literal("a"), Delimiter::merged_with_next, false),
          punctuation(Delimiter::contiguous),
          digits(true),
          char_delimiter(U'a'),
          unicode_scripts(),
          fixed_length(2),
          sequence({whitespace(), byte_level(true, true)})};
}

TEST(PreTokenizers, LeaveTokensAlone) {
  const std::string text = "a 1.[a 1.]b, c";
  for (const PreTokenizerPtr& cutter : every_pre_tokenizer()) {
    for (const bool keeps_origins : {false, true}) {
      Pieces pieces;
      pieces.reset(text, keeps_origins);
      pieces.set_pieces({{{0, 4}}, {{4, 10}, 77}, {{10, 14}}});
      cutter->cut(pieces);
      int tokens = 0;
      for (const Pieces::Piece& piece : pieces.pieces()) {
        if (!piece.is_token()) continue;
        ++tokens;
        EXPECT_EQ(piece.token, 77u);
        EXPECT_EQ(pieces.text(piece), "[a 1.]");
        if (keeps_origins) { EXPECT_EQ(pieces.origin(piece.bytes), (TextSpan{4, 10})); }
      }
      EXPECT_EQ(tokens, 1);
    }
  }
}

TEST(PreTokenizers, MakeNoPieceOfAnEmptyText) {
  for (const PreTokenizerPtr& cutter : every_pre_tokenizer()) {
    Pieces pieces;
    pieces.reset("", true);
    cutter->cut(pieces);
    EXPECT_TRUE(pieces.pieces().empty());
  }
}

// The characters of a text behind each other, in any number of pieces, lead back to its bytes.
TEST(PreTokenizers, OfTheByteLevelKeepEveryByte) {
  std::string text = "tail\u00a0";
  for (char32_t c = 1; c < 0x80; ++c) text += static_cast<char>(c);
  text += "\u00e9\u6f22 \U0001f600\u0301  ";
  Pieces pieces;
  for (const bool use_regex : {false, true}) {
    pieces.reset(text, true);
    pre_tokenizers::byte_level(false, use_regex)->cut(pieces);
    std::string characters, bytes;
    for (const Pieces::Piece& piece : pieces.pieces()) characters += pieces.text(piece);
    ASSERT_TRUE(ByteCharacters::append_bytes(characters, bytes));
    EXPECT_EQ(bytes, text);
  }
}

TEST(PreTokenizers, PrependOnlyToWhatStandsAtTheFrontOfTheText) {
  Pieces pieces;
  pieces.reset("ab cd", true);
  pre_tokenizers::sequence(
      {pre_tokenizers::whitespace_split(), pre_tokenizers::metaspace(U'_', PrependScheme::first, true)})
      ->cut(pieces);
  ASSERT_EQ(pieces.pieces().size(), 2u);
  EXPECT_EQ(pieces.text(pieces.pieces()[0]), "_ab");
  EXPECT_EQ(pieces.text(pieces.pieces()[1]), "cd");
}

TEST(PreTokenizers, OfNoLengthAreErrors) { EXPECT_THROW(pre_tokenizers::fixed_length(0), Error); }

}  // namespace
}  // namespace keel
