#include "keel/tokenizers/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/tokenizers/byte_characters.h"
#include "keel/tokenizers/normalizer.h"

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

std::vector<std::string> pieces_of(std::string_view text, bool keeps_origins, const Normalizer& normalizer,
                                   const PreTokenizer& cutter) {
  Pieces pieces;
  pieces.reset(text, keeps_origins);
  normalizer.normalize(pieces);
  cutter.cut(pieces);
  std::vector<std::string> all;
  for (const Pieces::Piece& piece : pieces.pieces()) all.emplace_back(pieces.text(piece));
  return all;
}

// What stood at the front may have been removed, replaced or made longer before.
TEST(PreTokenizers, KnowTheFrontOfTheTextWithoutOrigins) {
  const PreTokenizerPtr first = pre_tokenizers::metaspace(U'_', PrependScheme::first, true);
  const PreTokenizerPtr cutters[] = {first, pre_tokenizers::sequence({pre_tokenizers::whitespace_split(), first}),
                                     pre_tokenizers::sequence({pre_tokenizers::fixed_length(1), first})};
  for (const auto& [expression, content] :
       {std::pair{"\\s", ""}, {"\\s+", "-"}, {"\\d", "xyz"}, {"\\p{L}+", "\u00e9 "}}) {
    const NormalizerPtr normalizer = normalizers::replace_expression(expression, content);
    for (const char* text : {" ab c", "ab c", "  ", "1 a", " 1a", "\u00e9a 1", "12", "\u6f22", "\n1 b"})
      for (const PreTokenizerPtr& cutter : cutters)
        EXPECT_EQ(pieces_of(text, false, *normalizer, *cutter), pieces_of(text, true, *normalizer, *cutter))
            << expression << " in '" << text << "'";
  }
}

TEST(PreTokenizers, OfNoLengthAreErrors) { EXPECT_THROW(pre_tokenizers::fixed_length(0), Error); }

}  // namespace
}  // namespace keel
