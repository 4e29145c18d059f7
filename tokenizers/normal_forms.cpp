#include "keel/tokenizers/normal_forms.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "keel/tokenizers/older_unicode.h"

namespace keel {
namespace {

// Syllables of Hangul are composed by arithmetic (Unicode's chapter 3.12).
constexpr char32_t kSyllables = 0xac00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11a7;
constexpr char32_t kLeadCount = 19, kVowelCount = 21, kTailCount = 28;

constexpr bool is_syllable(char32_t c) {
  return c >= kSyllables && c < kSyllables + kLeadCount * kVowelCount * kTailCount;
}

char32_t syllable(char32_t first, char32_t second) {
  if (first >= kLeads && first < kLeads + kLeadCount && second >= kVowels && second < kVowels + kVowelCount) {
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
  }
  const bool is_open = is_syllable(first) && (first - kSyllables) % kTailCount == 0;
  return is_open && second > kTails && second < kTails + kTailCount ? first + (second - kTails) : 0;
}

constexpr std::uint64_t both_of(char32_t first, char32_t second) { return std::uint64_t{first} << 32 | second; }

// Whether the composed normal form of a character is the character itself.
bool stays_composed(char32_t c) {
  std::array<utf8proc_int32_t, 8> buffer{static_cast<utf8proc_int32_t>(c)};
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  int last_class = 0;
  const auto size =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), buffer.data(), buffer.size(), kOptions, &last_class);
  return utf8proc_normalize_utf32(buffer.data(), size, kOptions) == 1 && buffer[0] == static_cast<utf8proc_int32_t>(c);
}

}  // namespace

NormalForms::NormalForms()
    : sequences_(1),
      canonical_([this](char32_t c) { return add(c, false); }),
      compatible_([this](char32_t c) { return add(c, true); }) {
  find_pairs();
}

const NormalForms& NormalForms::get() {
  static const NormalForms forms;
  return forms;
}

std::uint16_t NormalForms::add(char32_t c, bool compatibly) {
  const utf8proc_property_t& property = *utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  if (!is_syllable(c)) {
    const bool has_one = property.decomp_seqindex != UINT16_MAX && (compatibly || property.decomp_type == 0);
    if (!has_one || lies_in(c, kDecompositionsSinceUnicode9)) return 0;
  }
  std::array<utf8proc_int32_t, 32> buffer;
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatibly ? UTF8PROC_COMPAT : 0));
  int last_class = 0;
  const auto size =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), buffer.data(), buffer.size(), options, &last_class);
  sequences_.push_back({static_cast<std::uint32_t>(characters_.size()), static_cast<std::uint32_t>(size)});
  characters_.insert(characters_.end(), buffer.begin(), buffer.begin() + size);
  return static_cast<std::uint16_t>(sequences_.size() - 1);
}

// A character of a decomposition in two or more is composed of the last one and of what the others are composed to.
void NormalForms::find_pairs() {
  std::map<std::vector<char32_t>, char32_t> composed;
  for (char32_t c = 0; c < TwoStage<std::uint16_t>::kEnd; ++c) {
    const auto parts = decomposition(c, false);
    if (parts.size() < 2 || is_syllable(c) || !stays_composed(c)) continue;
    composed.emplace(std::vector<char32_t>(parts.begin(), parts.end()), c);
    composites_.push_back(c);
  }
  for (const auto& [parts, composite] : composed) {
    const std::vector<char32_t> others(parts.begin(), parts.end() - 1);
    const auto first = others.size() == 1 ? composed.end() : composed.find(others);
    if (others.size() > 1 && first == composed.end()) continue;
    pairs_.push_back({both_of(others.size() == 1 ? others[0] : first->second, parts.back()), composite});
    seconds_.push_back(parts.back());
  }
  std::ranges::sort(pairs_, {}, &Pair::both);
  std::ranges::sort(seconds_);
}

std::span<const char32_t> NormalForms::decomposition(char32_t c, bool compatibly) const {
  const Sequence& sequence = sequences_[(compatibly ? compatible_ : canonical_)[c]];
  return {characters_.data() + sequence.begin, sequence.size};
}

char32_t NormalForms::composition(char32_t first, char32_t second) const {
  if (const char32_t made = syllable(first, second)) return made;
  const auto at = std::ranges::lower_bound(pairs_, both_of(first, second), {}, &Pair::both);
  return at != pairs_.end() && at->both == both_of(first, second) ? at->composite : 0;
}

bool NormalForms::is_composite(char32_t c) const {
  return is_syllable(c) || std::ranges::binary_search(composites_, c);
}

bool NormalForms::is_second(char32_t c) const {
  return (c >= kVowels && c < kVowels + kVowelCount) || (c > kTails && c < kTails + kTailCount) ||
         std::ranges::binary_search(seconds_, c);
}

}  // namespace keel
