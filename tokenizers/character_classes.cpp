#include "keel/tokenizers/character_classes.h"

#include <cstdint>

#include "keel/tokenizers/unicode.h"

namespace keel {
namespace {

// Oniguruma's \w: that of Unicode's annex 18 without joiners, with the superscripts and fractions of Latin-1.
bool is_oniguruma_word(char32_t c, CharacterClass unicode) {
  if (c == 0x200c || c == 0x200d) return false;
  return unicode.is_word() || c == 0xb2 || c == 0xb3 || c == 0xb9 || (c >= 0xbc && c <= 0xbe);
}

std::uint16_t class_set(char32_t c, CharacterClass unicode) {
  using namespace character_class;
  const Category category = unicode.category();
  const bool is_newline = c == '\r' || c == '\n', is_space = unicode.is_white_space();
  std::uint16_t set = 0;
  const auto add = [&](std::uint16_t one, bool holds) { set = static_cast<std::uint16_t>(set | (holds ? one : 0)); };
  add(kUpper, category == Category::upper || category == Category::title);
  add(kLower, category == Category::lower);
  add(kOtherLetter, category == Category::modifier_letter || category == Category::other_letter);
  add(kMark, unicode.is_mark());
  add(kNumber, unicode.is_number());
  add(kBlank, is_space && !is_newline);
  add(kNewline, is_newline);
  add(kOther, !is_space && !unicode.is_letter() && !unicode.is_number());
  add(kPunctuation, unicode.is_any_punctuation());
  add(kSymbol, unicode.is_symbol());
  add(kWord, is_oniguruma_word(c, unicode));
  add(kAnnexWord, unicode.is_word());
  add(kDigit, category == Category::decimal);
  add(kIdeograph, (c >= 0x4e00 && c <= 0x9fa5) || (c >= 0x3040 && c <= 0x30ff));
  add(kAsciiLetter, c < 0x80 && unicode.is_letter());
  add(kDelimiter, unicode.is_punctuation());
  return set;
}

}  // namespace

CharacterClasses::CharacterClasses()
    : sets_([&unicode = CharacterTable::get()](char32_t c) { return class_set(c, unicode[c]); }) {
  for (char32_t c = 0; c < ascii_.size(); ++c) ascii_[c] = sets_[c];
}

const CharacterClasses& CharacterClasses::table() {
  static const CharacterClasses classes;
  return classes;
}

}  // namespace keel
