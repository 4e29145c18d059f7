// Pre-tokenizers that cut where a pattern matches, or does not.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/utf8.h"
#include "keel/tokenizers/divide_pieces.h"
#include "keel/tokenizers/pre_tokenizer.h"
#include "keel/tokenizers/scanned_pattern.h"

namespace keel {
namespace {

// A part of a text: a delimiter, or what lies between two.
struct Part {
  TextSpan bytes;
  bool is_delimiter = false;
};

// The matches and, where it is not empty, what lies between them.
void append_parts(const std::vector<TextSpan>& matches, std::uint32_t size, bool invert, std::vector<Part>& parts) {
  std::uint32_t behind = 0;
  for (const TextSpan match : matches) {
    if (match.begin > behind) parts.push_back({{behind, match.begin}, invert});
    parts.push_back({match, !invert});
    behind = match.end;
  }
  if (size > behind) parts.push_back({{behind, size}, invert});
}

// Joins delimiters to the parts before them; of several in a row only the first.
template <class Extend>
void join_delimiters(std::vector<Part>& parts, const Extend& extend) {
  std::size_t kept = 0;
  bool was_delimiter = false;
  for (const Part& part : std::vector<Part>(parts)) {
    if (part.is_delimiter && !was_delimiter && kept > 0) extend(parts[kept - 1].bytes, part.bytes);
    else parts[kept++] = part;
    was_delimiter = part.is_delimiter;
  }
  parts.resize(kept);
}

void join_alike(std::vector<Part>& parts) {
  std::size_t kept = 0;
  for (const Part& part : std::vector<Part>(parts)) {
    if (kept > 0 && parts[kept - 1].is_delimiter == part.is_delimiter) parts[kept - 1].bytes.end = part.bytes.end;
    else parts[kept++] = part;
  }
  parts.resize(kept);
}

void apply_delimiters(Delimiter delimiter, std::vector<Part>& parts) {
  switch (delimiter) {
    case Delimiter::removed: std::erase_if(parts, [](const Part& part) { return part.is_delimiter; }); break;
    case Delimiter::isolated: break;
    case Delimiter::contiguous: join_alike(parts); break;
    case Delimiter::merged_with_previous:
      join_delimiters(parts, [](TextSpan& before, TextSpan delimiter_bytes) { before.end = delimiter_bytes.end; });
      break;
    case Delimiter::merged_with_next:
      std::ranges::reverse(parts);
      join_delimiters(parts, [](TextSpan& behind, TextSpan delimiter_bytes) { behind.begin = delimiter_bytes.begin; });
      std::ranges::reverse(parts);
      break;
  }
}

class SplitPreTokenizer final : public PreTokenizer {
 public:
  SplitPreTokenizer(PatternPtr pattern, Delimiter delimiter, bool invert)
      : pattern_(std::move(pattern)), delimiter_(delimiter), invert_(invert) {}

  void cut(Pieces& pieces) const override {
    std::vector<TextSpan> matches;
    std::vector<Part> parts;
    divide_pieces(pieces, [&](std::string_view text, const auto& add) {
      matches.clear();
      pattern_->find_all(text, matches);
      if (delimiter_ == Delimiter::removed && invert_) {
        for (const TextSpan match : matches) add(match.begin, match.end);
        return;
      }
      parts.clear();
      append_parts(matches, static_cast<std::uint32_t>(text.size()), invert_, parts);
      apply_delimiters(delimiter_, parts);
      for (const Part& part : parts) add(part.bytes.begin, part.bytes.end);
    });
  }

 private:
  PatternPtr pattern_;
  Delimiter delimiter_;
  bool invert_;
};

using namespace character_class;

// White space is removed, and each character of punctuation is a piece.
class BertPreTokenizer final : public PreTokenizer {
 public:
  void cut(Pieces& pieces) const override {
    divide_pieces(pieces, [](std::string_view text, const auto& add) {
      const Scan scan(text);
      std::uint32_t next = 0;
      for (std::uint32_t at = 0; at < scan.size(); at = next) {
        const std::uint32_t end = scan.run_outside(at, kSpace | kDelimiter);
        add(at, end);
        if ((scan.classes(end, next) & kDelimiter) != 0) add(end, next);
      }
    });
  }
};

// \w+|[^\w\s]+, with the \w of annex 18
struct WordScanner {
  static std::uint32_t match(const Scan& scan, std::uint32_t at) {
    const std::uint32_t end = scan.run(at, kAnnexWord);
    return end > at ? end : scan.run_outside(at, kAnnexWord | kSpace);
  }
};

}  // namespace

namespace pre_tokenizers {

PreTokenizerPtr split(PatternPtr pattern, Delimiter delimiter, bool invert) {
  return std::make_shared<SplitPreTokenizer>(std::move(pattern), delimiter, invert);
}

PreTokenizerPtr whitespace() { return split(scanned<WordScanner>(), Delimiter::removed, true); }

PreTokenizerPtr whitespace_split() { return split(scanned<OutsideScanner<kSpace>>(), Delimiter::removed, true); }

PreTokenizerPtr bert() { return std::make_shared<BertPreTokenizer>(); }

PreTokenizerPtr punctuation(Delimiter delimiter) {
  return split(scanned<RunScanner<kDelimiter, 1>>(), delimiter, false);
}

PreTokenizerPtr digits(bool individual) {
  return split(scanned<RunScanner<kNumber, 1>>(), individual ? Delimiter::isolated : Delimiter::contiguous, false);
}

PreTokenizerPtr char_delimiter(char32_t delimiter) {
  std::string text;
  append_utf8(text, delimiter);
  return split(patterns::literal(std::move(text)), Delimiter::removed, false);
}

}  // namespace pre_tokenizers
}  // namespace keel
