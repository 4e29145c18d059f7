#pragma once
// What the characters of Unicode are, by utf8proc's tables: one look-up a character. Where the Tokenizers library's
// tables are older, it is said which of both a question answers from.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "keel/tokenizers/two_stage.h"

namespace keel {

// General categories, in utf8proc's order.
enum class Category : std::uint8_t {
  unassigned,
  upper,
  lower,
  title,
  modifier_letter,
  other_letter,
  nonspacing_mark,
  spacing_mark,
  enclosing_mark,
  decimal,
  letter_number,
  other_number,
  connector,
  dash,
  open,
  close,
  initial_quote,
  final_quote,
  other_punctuation,
  math,
  currency,
  modifier_symbol,
  other_symbol,
  space,
  line,
  paragraph,
  control,
  format,
  surrogate,
  private_use,
};

class CharacterClass {
 public:
  // NOLINTBEGIN(readability-identifier-naming): bits to be joined, named as constants beside functions of the same
  // words
  enum Flag : std::uint32_t {
    kWhiteSpace = 1u << 5,
    kWord = 1u << 6,
    kPunctuation = 1u << 7,
    kControl = 1u << 8,
    kAccent = 1u << 9,
    kBertAccent = 1u << 10,
    kChinese = 1u << 11,
    kLowers = 1u << 12,
    kDecomposes = 1u << 13,
    kDecomposesCompatibly = 1u << 14,
    kRecomposes = 1u << 15,
    kRecomposesCompatibly = 1u << 16,
    kJoins = 1u << 17,
    kStaysBesideAccents = 1u << 18,  // has a combining class, itself or decomposed, that is no accent of BERT's
  };
  // NOLINTEND(readability-identifier-naming)
  static constexpr unsigned kCombiningClassShift = 24;

  constexpr CharacterClass() = default;
  constexpr explicit CharacterClass(std::uint32_t bits) : bits_(bits) {}

  constexpr Category category() const { return static_cast<Category>(bits_ & 31); }
  constexpr bool is_letter() const { return in(Category::upper, Category::other_letter); }                    // \p{L}
  constexpr bool is_mark() const { return in(Category::nonspacing_mark, Category::enclosing_mark); }          // \p{M}
  constexpr bool is_number() const { return in(Category::decimal, Category::other_number); }                  // \p{N}
  constexpr bool is_any_punctuation() const { return in(Category::connector, Category::other_punctuation); }  // \p{P}
  constexpr bool is_symbol() const { return in(Category::math, Category::other_symbol); }                     // \p{S}
  constexpr bool is_white_space() const { return has(kWhiteSpace); }  // \s, and char::is_whitespace of Rust
  constexpr bool is_word() const { return has(kWord); }  // \w: letters, marks, decimals, connectors, joiners
  // What the pre-tokenizers Bert and Punctuation cut at: ASCII's, symbols among them, and \p{P} of Unicode 8.
  constexpr bool is_punctuation() const { return has(kPunctuation); }
  constexpr bool is_control() const { return has(kControl); }         // what BERT's normalizer cleans away
  constexpr bool is_accent() const { return has(kAccent); }           // \p{M} of Unicode 9, as strip_accents has it
  constexpr bool is_bert_accent() const { return has(kBertAccent); }  // \p{Mn} of Unicode 8
  constexpr bool is_chinese() const { return has(kChinese); }         // what BERT's normalizer sets apart
  constexpr bool has_lower() const { return has(kLowers); }
  // Normal forms (tokenizers/normal_forms.h) may change a text that has this character: NFD, NFKD, NFC, NFKC.
  constexpr bool decomposes() const { return has(kDecomposes); }
  constexpr bool decomposes_compatibly() const { return has(kDecomposesCompatibly); }
  constexpr bool recomposes() const { return has(kRecomposes); }
  constexpr bool recomposes_compatibly() const { return has(kRecomposesCompatibly); }
  constexpr std::uint8_t combining_class() const { return static_cast<std::uint8_t>(bits_ >> kCombiningClassShift); }
  // A grapheme cluster may have a character more on one of its sides.
  constexpr bool joins() const { return has(kJoins); }
  constexpr bool has(std::uint32_t any_of) const { return (bits_ & any_of) != 0; }
  constexpr std::uint32_t bits() const { return bits_; }

 private:
  constexpr bool in(Category first, Category last) const { return category() >= first && category() <= last; }

  std::uint32_t bits_ = 0;  // category: 5 bits, flags, combining class: the last 8
};

class CharacterTable {
 public:
  // The one table, filled at the first call.
  static const CharacterTable& get();
  CharacterClass operator[](char32_t c) const { return CharacterClass(bits_[c]); }

 private:
  CharacterTable();

  TwoStage<std::uint32_t> bits_;
};

// The character that begins at `at` in valid UTF-8; `at` moves behind it.
inline char32_t next_character(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t first = byte(0);
  if (first < 0x80) {
    at += 1;
    return first;
  }
  const auto low = [&](std::size_t i) { return byte(i) & 0x3f; };
  if (first < 0xe0) {
    const char32_t c = (first & 0x1f) << 6 | low(1);
    at += 2;
    return c;
  }
  if (first < 0xf0) {
    const char32_t c = (first & 0xf) << 12 | low(1) << 6 | low(2);
    at += 3;
    return c;
  }
  const char32_t c = (first & 7) << 18 | low(1) << 12 | low(2) << 6 | low(3);
  at += 4;
  return c;
}

// One character in small letters: up to three characters (U+0130 has two), whatever stands around it.
struct Lowered {
  std::array<char32_t, 3> characters{};
  std::uint8_t count = 0;
};
Lowered lowered(char32_t c);

// Whether a border of grapheme clusters lies between `before` and `after`; `state` is 0 at the front of a text.
bool breaks_grapheme(char32_t before, char32_t after, std::int32_t& state);

}  // namespace keel
