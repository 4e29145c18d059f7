#include "keel/tokenizers/pieces.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace {

using keel::Pieces;
using keel::TextSpan;

constexpr std::string_view kText = "a\xc3\xa9z";  // bytes 0, 1-3, 3

std::vector<TextSpan> origins(const Pieces& pieces) {
  std::vector<TextSpan> all;
  for (std::uint32_t at = 0; at < pieces.bytes().size(); ++at) all.push_back(pieces.origin({at, at + 1}));
  return all;
}

Pieces pieces_of(std::string_view text, bool keep_origins = true) {
  Pieces pieces;
  pieces.reset(text, keep_origins);
  return pieces;
}

TEST(Pieces, ATextIsOnePieceAndAnEmptyOneIsNone) {
  EXPECT_EQ(pieces_of(kText).pieces().size(), 1u);
  EXPECT_EQ(pieces_of(kText).text(pieces_of(kText).pieces()[0]), kText);
  EXPECT_TRUE(pieces_of("").pieces().empty());
}

TEST(Pieces, ByteOfAnUntouchedTextComesFromItsWholeCharacter) {
  EXPECT_EQ(origins(pieces_of(kText)), (std::vector<TextSpan>{{0, 1}, {1, 3}, {1, 3}, {3, 4}}));
  EXPECT_EQ(pieces_of(kText).origin({1, 1}), (TextSpan{1, 1}));
  EXPECT_EQ(pieces_of(kText).origin({4, 4}), (TextSpan{4, 4}));
}

TEST(Pieces, KeepingEverythingChangesNothing) {
  Pieces pieces = pieces_of(kText);
  for (int again = 0; again < 2; ++again) {
    Pieces::Rewrite rewrite(pieces);
    rewrite.keep({0, 2});
    rewrite.keep({2, 4});
    rewrite.done();
    EXPECT_EQ(pieces.bytes(), kText);
    EXPECT_EQ(origins(pieces), origins(pieces_of(kText)));
    EXPECT_EQ(pieces.pieces().size(), 1u);
  }
}

TEST(Pieces, WhatReplacesARangeComesFromItsLastCharacter) {
  Pieces pieces = pieces_of(kText);
  Pieces::Rewrite rewrite(pieces);
  rewrite.replace({0, 3}, "xy");
  rewrite.keep({3, 4});
  rewrite.done();
  EXPECT_EQ(pieces.bytes(), "xyz");
  EXPECT_EQ(origins(pieces), (std::vector<TextSpan>{{1, 3}, {1, 3}, {3, 4}}));
}

TEST(Pieces, WhatIsInsertedComesFromTheCharacterBeforeItEvenARemovedOne) {
  Pieces pieces = pieces_of(kText);
  Pieces::Rewrite rewrite(pieces);
  rewrite.keep({0, 1});
  rewrite.insert("+");
  rewrite.replace({1, 3}, "");
  rewrite.insert("-");
  rewrite.replace({3, 3}, "*");
  rewrite.keep({3, 4});
  rewrite.done();
  EXPECT_EQ(pieces.bytes(), "a+-*z");
  EXPECT_EQ(origins(pieces), (std::vector<TextSpan>{{0, 1}, {0, 1}, {1, 3}, {1, 3}, {3, 4}}));
}

TEST(Pieces, WhatIsInsertedInFrontOfAPieceComesFromTheCharacterBehindIt) {
  Pieces pieces = pieces_of(kText);
  Pieces::Rewrite rewrite(pieces);
  rewrite.insert("<");
  rewrite.insert("<");
  rewrite.keep({0, 1});
  rewrite.cut();
  rewrite.insert("<");
  rewrite.keep({1, 4});
  rewrite.done();
  EXPECT_EQ(pieces.bytes(), "<<a<\xc3\xa9z");
  EXPECT_EQ(origins(pieces), (std::vector<TextSpan>{{0, 1}, {0, 1}, {0, 1}, {1, 3}, {1, 3}, {1, 3}, {3, 4}}));
  EXPECT_EQ(pieces.pieces().size(), 2u);
}

TEST(Pieces, WhatReplacesNothingInFrontOfAPieceComesFromNothing) {
  Pieces pieces = pieces_of("abc");
  pieces.set_pieces({{{1, 3}}});
  Pieces::Rewrite rewrite(pieces);
  rewrite.replace({1, 1}, "<");
  rewrite.keep({1, 3});
  rewrite.done();
  EXPECT_EQ(origins(pieces), (std::vector<TextSpan>{{1, 1}, {1, 2}, {2, 3}}));
}

TEST(Pieces, ATokenPassesThroughAsAPieceOfItsOwn) {
  Pieces pieces = pieces_of("ab[T]c");
  pieces.set_pieces({{{0, 2}}, {{2, 5}, 7}, {{5, 6}}});
  Pieces::Rewrite rewrite(pieces);
  rewrite.replace({0, 2}, "");
  rewrite.token(pieces.pieces()[1]);
  rewrite.replace({5, 6}, "C");
  rewrite.done();
  ASSERT_EQ(pieces.pieces().size(), 2u);
  EXPECT_EQ(pieces.pieces()[0].token, 7u);
  EXPECT_EQ(pieces.text(pieces.pieces()[0]), "[T]");
  EXPECT_FALSE(pieces.pieces()[1].is_token());
  EXPECT_EQ(pieces.origin({0, 4}), (TextSpan{2, 6}));
}

TEST(Pieces, RewritingWithoutOriginsWritesTheSameText) {
  for (const bool keep_origins : {false, true}) {
    Pieces pieces = pieces_of(kText, keep_origins);
    Pieces::Rewrite rewrite(pieces);
    rewrite.insert("<");
    rewrite.keep({0, 1});
    rewrite.replace({1, 3}, "e");
    rewrite.cut();
    rewrite.replace({3, 4}, "");
    rewrite.done();
    EXPECT_EQ(pieces.bytes(), "<ae");
    EXPECT_EQ(pieces.pieces().size(), 1u);
  }
}

TEST(Pieces, ARewriteThatIsNotDoneChangesNothing) {
  Pieces pieces = pieces_of(kText);
  { Pieces::Rewrite(pieces).replace({0, 4}, "other"); }
  EXPECT_EQ(pieces.bytes(), kText);
  EXPECT_EQ(pieces.pieces().size(), 1u);
}

}  // namespace
