#include "keel/tokenizers/normalizer.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/runtime/utf8.h"
#include "keel/tokenizers/pieces.h"
#include "keel/tokenizers/unicode.h"

namespace {

using keel::NormalizerPtr;
using keel::Pieces;
namespace n = keel::normalizers;

std::string normalized(const NormalizerPtr& normalizer, std::string_view text) {
  Pieces pieces;
  pieces.reset(text, false);
  normalizer->normalize(pieces);
  return std::string(pieces.bytes());
}

// Letters with and without marks, marks, Hangul in parts, and others, so that what is beside each other joins.
std::string drawn_text(std::mt19937& draw) {
  constexpr char32_t kCharacters[] = {'e',    'A',    ' ',    0xe9,   0x1ebf, 0x301,  0x323,  0x307,   0x1100, 0x1161,
                                      0x11a8, 0xac00, 0xac01, 0xfb01, 0x130,  0x4e00, 0xf900, 0x1d15e, 0x344,  0x3000};
  std::string text;
  for (std::size_t size = draw() % 12; size > 0; --size)
    keel::append_utf8(text, kCharacters[draw() % std::size(kCharacters)]);
  return text;
}

TEST(Normalizers, NormalFormsOfNormalFormsAreThemselves) {
  std::mt19937 draw(5);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = drawn_text(draw);
    for (const auto& form : {n::nfc(), n::nfd(), n::nfkc(), n::nfkd()}) {
      const std::string once = normalized(form, text);
      EXPECT_EQ(normalized(form, once), once);
    }
    EXPECT_EQ(normalized(n::nfc(), normalized(n::nfd(), text)), normalized(n::nfc(), text));
    EXPECT_EQ(normalized(n::nfd(), normalized(n::nfc(), text)), normalized(n::nfd(), text));
    EXPECT_EQ(normalized(n::nfkd(), normalized(n::nfc(), text)), normalized(n::nfkd(), text));
  }
}

TEST(Normalizers, TextsInPiecesAreNormalizedPieceByPieceAndTokensNot) {
  Pieces pieces;
  pieces.reset("Ab<A>Cd", true);
  pieces.set_pieces({{{0, 2}}, {{2, 5}, 1}, {{5, 7}}});
  n::sequence({n::prepend("_"), n::lowercase()})->normalize(pieces);
  EXPECT_EQ(pieces.bytes(), "_ab<A>_cd");
  ASSERT_EQ(pieces.pieces().size(), 3u);
  EXPECT_TRUE(pieces.pieces()[1].is_token());
}

TEST(Normalizers, BertsStepsAtOnceAreItsStepsOneByOne) {
  using Strip = n::BertOptions::StripAccents;
  const auto at_once = n::bert({});
  const auto steps =
      n::sequence({n::bert({true, false, Strip::no, false}), n::bert({false, true, Strip::no, false}),
                   n::bert({false, false, Strip::yes, false}), n::bert({false, false, Strip::no, true})});
  std::mt19937 draw(6);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = drawn_text(draw);
    Pieces one, other;
    one.reset(text, true);
    other.reset(text, true);
    at_once->normalize(one);
    steps->normalize(other);
    ASSERT_EQ(one.bytes(), other.bytes());
    for (std::uint32_t at = 0; at < one.bytes().size(); ++at) {
      ASSERT_EQ(one.origin({at, at + 1}), other.origin({at, at + 1})) << one.bytes();
    }
  }
}

TEST(Normalizers, VeryLongTextsOfMarksAreSortedLikeShortOnes) {
  std::string marks = "e";
  for (int i = 0; i < 20000; ++i) marks += i % 2 == 0 ? "\xcc\x81" : "\xcc\xa3";  // classes 230 and 220
  const std::string made = normalized(n::nfd(), marks);
  EXPECT_EQ(made.size(), marks.size());
  EXPECT_EQ(made.rfind("\xcc\xa3"), 1 + 2 * 9999u);
}

TEST(Normalizers, AnyNumberOfThreadsMakesTheSame) {
  const auto normalizer = n::sequence({n::nfkc(), n::bert({})});
  std::mt19937 draw(7);
  std::vector<std::string> texts, expected;
  for (int i = 0; i < 200; ++i) texts.push_back(drawn_text(draw));
  for (const std::string& text : texts) expected.push_back(normalized(normalizer, text));
  std::vector<std::vector<std::string>> made(3);
  std::vector<std::thread> threads;
  for (auto& each : made) {
    threads.emplace_back([&] {
      for (const std::string& text : texts) each.push_back(normalized(normalizer, text));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& each : made) EXPECT_EQ(each, expected);
}

TEST(Normalizers, CharacterMapsThatAreCutOffOrNoMapAreErrors) {
  const std::string trie("\4\0\0\0\0\0\0\0", 8);
  for (const std::string& bad :
       {std::string(), std::string("\4\0", 2), std::string("\4\0\0\0\0", 5), std::string("\3\0\0\0abc", 7),
        std::string("\0\0\0\0", 4), std::string("\xff\xff\xff\xff\0\0\0\0", 8), trie + "\xff"}) {
    EXPECT_THROW(n::precompiled(bad), keel::Error);
  }
  EXPECT_EQ(normalized(n::precompiled(trie), "text"), "text");
}

// A double array of any bytes changes texts to valid ones, or not at all.
TEST(Normalizers, CharacterMapsOfRandomBytesReadNothingOutside) {
  std::mt19937 draw(8);
  for (int i = 0; i < 20; ++i) {
    std::string map("\0\2\0\0", 4);
    for (int byte = 0; byte < 512; ++byte) map += static_cast<char>(draw() & draw());
    for (int unit = 1; unit < 128; ++unit)
      map[4 + 4 * unit] = static_cast<char>(draw() % 3 == 0 ? unit : 'e' + unit % 2);
    map += "\xc3\xa9\xe2\x82\xac";
    const std::string made = normalized(n::precompiled(map), "everything else\xc3\xa9 e\xcc\x81");
    EXPECT_EQ(keel::find_bad_utf8(made), std::string::npos);
  }
}

TEST(Characters, LoweredSigmaIsTheSameEverywhere) {
  EXPECT_EQ(normalized(n::lowercase(), "\xce\xa3\xce\xa3"), "\xcf\x83\xcf\x83");
  EXPECT_EQ(keel::lowered(0x130).count, 2);
  EXPECT_EQ(keel::lowered('A').characters[0], U'a');
}

TEST(Characters, AreReadOneByOneAsTheRuntimeReadsThem) {
  std::mt19937 draw(9);
  for (int i = 0; i < 500; ++i) {
    const std::string text = drawn_text(draw);
    for (std::size_t at = 0; at < text.size();) {
      const keel::CodePoint expected = keel::decode_utf8(text, at);
      const std::size_t begin = at;
      EXPECT_EQ(keel::next_character(text, at), expected.value);
      EXPECT_EQ(at, begin + expected.bytes);
    }
  }
}

}  // namespace
