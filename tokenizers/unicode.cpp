#include "keel/tokenizers/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>

#include "keel/tokenizers/normal_forms.h"
#include "keel/tokenizers/older_unicode.h"

namespace keel {
namespace {

static_assert(static_cast<int>(Category::unassigned) == UTF8PROC_CATEGORY_CN);
static_assert(static_cast<int>(Category::upper) == UTF8PROC_CATEGORY_LU);
static_assert(static_cast<int>(Category::nonspacing_mark) == UTF8PROC_CATEGORY_MN);
static_assert(static_cast<int>(Category::decimal) == UTF8PROC_CATEGORY_ND);
static_assert(static_cast<int>(Category::connector) == UTF8PROC_CATEGORY_PC);
static_assert(static_cast<int>(Category::math) == UTF8PROC_CATEGORY_SM);
static_assert(static_cast<int>(Category::space) == UTF8PROC_CATEGORY_ZS);
static_assert(static_cast<int>(Category::private_use) == UTF8PROC_CATEGORY_CO);

bool is_white_space_character(char32_t c, Category category) {
  return (c >= 9 && c <= 13) || c == 0x85 || (category >= Category::space && category <= Category::paragraph);
}

// \w of Unicode's annex 18: alphabetic characters, marks, decimals, connectors and joiners. Of alphabetic characters,
// those that are neither letters, marks nor letter numbers are the circled and squared Latin letters.
bool is_word_character(char32_t c, CharacterClass by_category) {
  const Category category = by_category.category();
  const bool is_circled = (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
                          (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
  return by_category.is_letter() || by_category.is_mark() || category == Category::decimal ||
         category == Category::letter_number || category == Category::connector || is_circled || c == 0x200c ||
         c == 0x200d;
}

bool is_punctuation_character(char32_t c, CharacterClass by_category) {
  if (c < 0x80) return by_category.is_any_punctuation() || by_category.is_symbol();
  if (lies_in(c, kPunctuationOnlyBefore)) return true;
  return by_category.is_any_punctuation() && !lies_in(c, kPunctuationSinceUnicode9);
}

bool is_control_character(char32_t c, Category category) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  if (c == 0xfffd) return true;
  return category >= Category::control && category <= Category::private_use && !lies_in(c, kFormatsSinceUnicode9);
}

// Characters that may join a cluster of more than one, whatever their neighbours are.
bool joins_clusters(const utf8proc_property_t& property) {
  return property.boundclass != UTF8PROC_BOUNDCLASS_OTHER && property.boundclass != UTF8PROC_BOUNDCLASS_CONTROL &&
         property.boundclass != UTF8PROC_BOUNDCLASS_EXTENDED_PICTOGRAPHIC;
}

std::uint32_t class_bits(char32_t c) {
  const utf8proc_property_t& property = *utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  const CharacterClass by_category(static_cast<std::uint32_t>(property.category));
  const Category category = by_category.category();
  std::uint32_t bits = by_category.bits();
  const auto set = [&](CharacterClass::Flag flag, bool holds) { bits |= holds ? flag : 0u; };
  set(CharacterClass::kChinese, lies_in(c, kBertChinese));
  set(CharacterClass::kControl, is_control_character(c, category));
  if (category == Category::unassigned || category == Category::private_use) return bits;
  set(CharacterClass::kWhiteSpace, is_white_space_character(c, category));
  set(CharacterClass::kWord, is_word_character(c, by_category));
  set(CharacterClass::kPunctuation, is_punctuation_character(c, by_category));
  const bool is_young_mark = by_category.is_mark() && lies_in(c, kMarksSinceUnicode9);
  set(CharacterClass::kAccent, (by_category.is_mark() && !is_young_mark) || lies_in(c, kMarksOnlyBefore));
  set(CharacterClass::kBertAccent, (category == Category::nonspacing_mark && !lies_in(c, kNonspacingSinceUnicode8)) ||
                                       lies_in(c, kNonspacingOnlyBefore));
  set(CharacterClass::kLowers, c == 0x130 || utf8proc_tolower(static_cast<utf8proc_int32_t>(c)) != static_cast<int>(c));
  set(CharacterClass::kJoins, joins_clusters(property));
  const NormalForms& forms = NormalForms::get();
  const auto canonical = forms.decomposition(c, false), compatible = forms.decomposition(c, true);
  set(CharacterClass::kDecomposes, !canonical.empty());
  set(CharacterClass::kDecomposesCompatibly, !compatible.empty());
  const bool comes_back = forms.is_composite(c), is_second = forms.is_second(c);
  set(CharacterClass::kRecomposes, is_second || (!canonical.empty() && !comes_back));
  set(CharacterClass::kRecomposesCompatibly,
      is_second || (!compatible.empty() && !(comes_back && std::ranges::equal(canonical, compatible))));
  if (!is_young_mark)
    bits |= static_cast<std::uint32_t>(property.combining_class) << CharacterClass::kCombiningClassShift;
  const auto stays = [](CharacterClass is) { return is.combining_class() != 0 && !is.is_bert_accent(); };
  const auto part_stays = [&](char32_t part) { return stays(CharacterClass(class_bits(part))); };
  set(CharacterClass::kStaysBesideAccents, stays(CharacterClass(bits)) || std::ranges::any_of(canonical, part_stays));
  return bits;
}

}  // namespace

CharacterTable::CharacterTable() : bits_(class_bits) {}

const CharacterTable& CharacterTable::get() {
  static const CharacterTable table;
  return table;
}

Lowered lowered(char32_t c) {
  if (c == 0x130) return {{'i', 0x307}, 2};  // the one character whose small form is two, wherever it stands
  return {{static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)))}, 1};
}

bool breaks_grapheme(char32_t before, char32_t after, std::int32_t& state) {
  return utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before), static_cast<utf8proc_int32_t>(after),
                                          &state);
}

}  // namespace keel
