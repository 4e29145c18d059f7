#include "keel/tokenizers/known_expressions.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "keel/tokenizers/scanned_pattern.h"
#include "keel/tokenizers/scanning.h"

namespace keel {
namespace {

using namespace character_class;

struct Gpt2Scanner {
  static std::uint32_t match(const Scan& scan, std::uint32_t at) {
    if (const std::uint32_t end = scan.contraction<false>(at); end > at) return end;
    std::uint32_t next = 0;
    const std::uint16_t set = scan.classes(scan.optional_space(at), next);
    if ((set & kLetter) != 0) return scan.run(next, kLetter);
    if ((set & kOther) != 0) return scan.run(next, kOther);
    if ((set & kNumber) != 0) return scan.run(next, kNumber);
    return scan.spaces(at);
  }
};

// What Llama 3 and its relatives do behind words: numbers, other characters, white space.
template <int kDigits>
std::uint32_t match_behind_words(const Scan& scan, std::uint32_t at, std::string_view tail) {
  if (const std::uint32_t end = scan.run_at_most(kDigits, at, kNumber); end > at) return end;
  const std::uint32_t begin = scan.optional_space(at);
  if (const std::uint32_t end = scan.run(begin, kOther); end > begin) return scan.run_of_bytes(end, tail);
  if (const std::uint32_t end = scan.through_newlines(at); end > at) return end;
  return scan.spaces(at);
}

// [before]?[letters]+, where what may stand before is no letter, or a mark, which may as well be one.
std::uint32_t match_word(const Scan& scan, std::uint32_t at, std::uint16_t before, std::uint16_t letters) {
  std::uint32_t next = 0;
  const std::uint16_t set = scan.classes(at, next);
  if ((set & letters) != 0) return scan.run(next, letters);
  if ((set & before) == 0) return at;
  const std::uint32_t end = scan.run(next, letters);
  return end > next ? end : at;
}

template <int kDigits>
struct Llama3Scanner {
  static std::uint32_t match(const Scan& scan, std::uint32_t at) {
    if (const std::uint32_t end = scan.contraction<true>(at); end > at) return end;
    if (const std::uint32_t end = match_word(scan, at, kOther | kBlank, kLetter); end > at) return end;
    return match_behind_words<kDigits>(scan, at, "\r\n");
  }
};

// Marks belong to words, and do not stand among other characters.
struct Qwen35Scanner {
  static std::uint32_t match(const Scan& scan, std::uint32_t at) {
    if (const std::uint32_t end = scan.contraction<true>(at); end > at) return end;
    if (const std::uint32_t end = match_word(scan, at, kOther | kBlank, kLetter | kMark); end > at) return end;
    if (const std::uint32_t end = scan.run_at_most(1, at, kNumber); end > at) return end;
    const std::uint32_t begin = scan.optional_space(at);
    if (const std::uint32_t end = scan.run(begin, kOther, kMark); end > begin) return scan.run_of_bytes(end, "\r\n");
    if (const std::uint32_t end = scan.through_newlines(at); end > at) return end;
    return scan.spaces(at);
  }
};

// Words begin with capitals or end with small letters: of A = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and
// B = [\p{Ll}\p{Lm}\p{Lo}\p{M}], A*B+ or, where that does not match, A+B*.
constexpr std::uint16_t kNoCase = kOtherLetter | kMark;  // in both
constexpr std::uint16_t kCapitals = kUpper | kNoCase, kSmall = kLower | kNoCase;

// A*B+ at `begin`; `begin` where it does not match. `capitals` becomes the end of A*.
std::uint32_t match_small_ending(const Scan& scan, std::uint32_t begin, std::uint32_t& capitals) {
  std::uint32_t behind_no_case = begin, next = 0;
  for (capitals = begin;; capitals = next) {
    const std::uint16_t set = scan.classes(capitals, next);
    if ((set & kCapitals) == 0) break;
    if ((set & kNoCase) != 0) behind_no_case = next;
  }
  const std::uint32_t end = scan.run(capitals, kSmall);
  return end > capitals ? end : behind_no_case;
}

std::uint32_t match_cased_word(const Scan& scan, std::uint32_t at) {
  const std::uint32_t begin = scan.optional(at, kOther | kBlank);
  std::uint32_t capitals = 0;
  if (const std::uint32_t end = match_small_ending(scan, begin, capitals); end > begin) return end;
  if (begin > at && scan.is(at, kMark)) return begin;  // the mark is a word, and nothing stands before it
  return capitals > begin ? capitals : at;
}

template <int kDigits, bool kContractions>
struct CasedScanner {
  static std::uint32_t match(const Scan& scan, std::uint32_t at) {
    if (const std::uint32_t end = match_cased_word(scan, at); end > at)
      return kContractions ? scan.contraction<true>(end) : end;
    return match_behind_words<kDigits>(scan, at, "\r\n/");
  }
};

struct DeepSeekScanner {
  static std::uint32_t match(const Scan& scan, std::uint32_t at) {
    std::uint32_t next = 0;
    const std::uint16_t set = scan.classes(at, next);
    if (next == at + 1 && (set & (kPunctuation | kSymbol)) != 0 && scan.is(next, kAsciiLetter))
      return scan.run(next, kAsciiLetter);
    const bool stands_before = (set & (kNewline | kLetter | kPunctuation | kSymbol)) == 0;
    const std::uint32_t begin = stands_before ? next : at;
    if (const std::uint32_t end = scan.run(begin, kLetter | kMark); end > begin) return end;
    if ((set & kMark) != 0) return next;
    const std::uint32_t behind = scan.optional_space(at);
    if (const std::uint32_t end = scan.run(behind, kPunctuation | kSymbol); end > behind)
      return scan.run_of_bytes(end, "\r\n");
    if (const std::uint32_t end = scan.through_newlines(at); end > at) return end;
    return scan.spaces(at);
  }
};

struct ClipScanner {
  static std::uint32_t match(const Scan& scan, std::uint32_t at) {
    if (const std::uint32_t end = scan.contraction<false>(at); end > at) return end;
    if (const std::uint32_t end = scan.run(at, kLetter); end > at) return end;
    if (const std::uint32_t end = scan.run_at_most(1, at, kNumber); end > at) return end;
    return scan.run(at, kOther);
  }
};

// \w+|[^\w\s]+, where \w in brackets has not the superscripts and fractions that it has alone: a run of other
// characters goes through them.
struct OnigurumaWordScanner {
  static std::uint32_t match(const Scan& scan, std::uint32_t at) {
    if (const std::uint32_t end = scan.run(at, kWord); end > at) return end;
    return scan.run_while(at, [](std::uint16_t set) {
      constexpr std::uint16_t kInBrackets = kWord | kAnnexWord;  // both
      return (set & kSpace) == 0 && (set & kInBrackets) != kInBrackets;
    });
  }
};

// \s?[set]+, of a set without white space
template <std::uint16_t kSet>
struct SpacedRunScanner {
  static std::uint32_t match(const Scan& scan, std::uint32_t at) {
    const std::uint32_t begin = scan.optional(at, kSpace), end = scan.run(begin, kSet);
    return end > begin ? end : at;
  }
};

// " {2,}"
struct SeveralSpacesScanner {
  static std::uint32_t match(const Scan& scan, std::uint32_t at) {
    const std::uint32_t end = scan.run_of_bytes(at, " ");
    return end >= at + 2 ? end : at;
  }
};

}  // namespace

const std::vector<KnownExpression>& known_expressions() {
  static const std::vector<KnownExpression> all = {
      {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", "GPT-2",
       scanned<Gpt2Scanner>()},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
       R"(|\s+(?!\S)|\s+)",
       "Llama 3", scanned<Llama3Scanner<3>>()},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
       R"(|\s+(?!\S)|\s+)",
       "Qwen 2", scanned<Llama3Scanner<1>>()},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
       R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
       "Qwen 3.5", scanned<Qwen35Scanner>()},
      {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
       R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
       R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       "o200k", scanned<CasedScanner<3, true>>()},
      {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
       R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
       R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       "Mistral's Tekken", scanned<CasedScanner<1, false>>()},
      {R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
       R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
       "DeepSeek V3", scanned<DeepSeekScanner>()},
      {R"([一-龥぀-ゟ゠-ヿ]+)", "DeepSeek V3", scanned<RunScanner<kIdeograph>>()},
      {R"(\s?\p{L}+)", "DeepSeek V2", scanned<SpacedRunScanner<kLetter>>()},
      {R"(\s?\p{P}+)", "DeepSeek V2", scanned<SpacedRunScanner<kPunctuation>>()},
      {R"([\r\n])", "DeepSeek", scanned<RunScanner<kNewline, 1>>()},
      {R"('s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)", "CLIP", scanned<ClipScanner>()},
      {R"(\w+|[^\w\s]+)", "words", scanned<OnigurumaWordScanner>()},
      {R"(\s+)", "white space", scanned<RunScanner<kSpace>>()},
      {R"(\s)", "white space", scanned<RunScanner<kSpace, 1>>()},
      {R"( {2,})", "T5", scanned<SeveralSpacesScanner>()},
      {R"(\p{N}{1,3})", "DeepSeek V3", scanned<RunScanner<kNumber, 3>>()},
      {R"(\p{N}+)", "numbers", scanned<RunScanner<kNumber>>()},
      {R"(\p{N})", "numbers", scanned<RunScanner<kNumber, 1>>()},
      {R"(\d+)", "digits", scanned<RunScanner<kDigit>>()},
      {R"(\d)", "digits", scanned<RunScanner<kDigit, 1>>()},
      {R"(\p{P}+)", "punctuation", scanned<RunScanner<kPunctuation>>()},
      {R"(\p{P})", "punctuation", scanned<RunScanner<kPunctuation, 1>>()},
      {R"(\p{L}+)", "letters", scanned<RunScanner<kLetter>>()},
      {R"(\w+)", "words", scanned<RunScanner<kWord>>()},
  };
  return all;
}

PatternPtr find_known_expression(std::string_view text) {
  const auto& all = known_expressions();
  const auto found = std::ranges::find(all, text, &KnownExpression::text);
  return found == all.end() ? nullptr : found->pattern;
}

}  // namespace keel
