#pragma once
// Classes of characters that expressions name: one look-up tells all that a character is in.

#include <array>
#include <cstdint>

#include "keel/tokenizers/two_stage.h"

namespace keel {

// Sets of characters, as bits. Properties of Unicode and Oniguruma's \s, \w and \d in UTF-8 texts.
namespace character_class {
inline constexpr std::uint16_t kUpper = 1 << 0;         // \p{Lu}, \p{Lt}
inline constexpr std::uint16_t kLower = 1 << 1;         // \p{Ll}
inline constexpr std::uint16_t kOtherLetter = 1 << 2;   // \p{Lm}, \p{Lo}
inline constexpr std::uint16_t kMark = 1 << 3;          // \p{M}
inline constexpr std::uint16_t kNumber = 1 << 4;        // \p{N}
inline constexpr std::uint16_t kBlank = 1 << 5;         // \s without \r and \n
inline constexpr std::uint16_t kNewline = 1 << 6;       // \r, \n
inline constexpr std::uint16_t kOther = 1 << 7;         // [^\s\p{L}\p{N}]
inline constexpr std::uint16_t kPunctuation = 1 << 8;   // \p{P}
inline constexpr std::uint16_t kSymbol = 1 << 9;        // \p{S}
inline constexpr std::uint16_t kWord = 1 << 10;         // \w
inline constexpr std::uint16_t kAnnexWord = 1 << 11;    // \w of Unicode's annex 18, which has joiners
inline constexpr std::uint16_t kDigit = 1 << 12;        // \d
inline constexpr std::uint16_t kIdeograph = 1 << 13;    // U+4E00 to U+9FA5, Hiragana and Katakana
inline constexpr std::uint16_t kAsciiLetter = 1 << 14;  // [A-Za-z]
inline constexpr std::uint16_t kDelimiter = 1 << 15;    // where Punctuation and BertPreTokenizer cut
inline constexpr std::uint16_t kLetter = kUpper | kLower | kOtherLetter;
inline constexpr std::uint16_t kSpace = kBlank | kNewline;
}  // namespace character_class

class CharacterClasses {
 public:
  static const CharacterClasses& table();

  // Of a character up to U+10FFFF.
  std::uint16_t of(char32_t character) const { return sets_[character]; }
  const std::uint16_t* of_ascii() const { return ascii_.data(); }

 private:
  CharacterClasses();

  TwoStage<std::uint16_t> sets_;
  std::array<std::uint16_t, 128> ascii_{};
};

}  // namespace keel
