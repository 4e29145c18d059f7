#pragma once
// What a text becomes: tokens, and for each of them where it came from.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "keel/tokenizers/text_span.h"

namespace keel {

// A text, or two that belong together.
struct TextPair {
  std::string_view first;
  std::optional<std::string_view> second;
};

// Spaces at both ends of a token of the byte level, in characters; how many there are in a text that an added token was
// found as is told beside the token (`in_text`).
struct TokenSpaces {
  std::uint32_t leading = 0, trailing = 0;
  bool in_text = false;
};

// All vectors have one entry a token.
struct Encoding {
  static constexpr std::int32_t kNoWord = -1;  // of a special token, or padding
  static constexpr std::int32_t kNoSequence = -1;

  std::vector<std::uint32_t> ids;
  std::vector<std::uint32_t>
      type_ids;                   // 0 for the first text of a pair, 1 for the second, unless a template says otherwise
  std::vector<TextSpan> offsets;  // bytes of the text that was given, with U+FFFD (3 bytes) for what is no UTF-8
  std::vector<std::int32_t> word_ids;      // the piece that a token was cut from, counted from 0 in each text
  std::vector<std::int32_t> sequence_ids;  // 0: first text, 1: second
  std::vector<std::uint8_t> special;       // 1: put there by a template or as padding
  std::vector<std::uint8_t> attention;     // 0: padding
  std::vector<TokenSpaces> spaces;         // at the ends of what an added token was found as; none of the others
  std::vector<Encoding> overflow;          // what truncation cut off, by windows

  std::size_t size() const { return ids.size(); }
  // One token more at the end; `special` tokens have no word and no text.
  void add(std::uint32_t id, std::uint32_t type_id, TextSpan offset, std::int32_t word, std::int32_t sequence,
           TokenSpaces at_ends = {});
  void add_special(std::uint32_t id, std::uint32_t type_id);
  // Those of another behind, without its overflow.
  void append(const Encoding& other);
  // Tokens of a range, without overflow.
  Encoding slice(std::size_t begin, std::size_t end) const;
  void reserve(std::size_t tokens);
};

// Offsets counted in characters (code points), as Python counts; `text` is the valid UTF-8 that they lie in. A
// character of which a range has a part belongs to it.
std::vector<TextSpan> character_offsets(std::string_view text, const std::vector<TextSpan>& offsets);

enum class Side { left, right };

// Cuts texts so that they fit together with the special tokens.
struct Truncation {
  enum class Strategy { longest_first, only_first, only_second };
  std::int64_t length = 512;  // tokens, specials included
  std::int64_t stride = 0;    // tokens that windows of what was cut off share
  Strategy strategy = Strategy::longest_first;
  Side side = Side::right;
};

struct Padding {
  enum class To { longest, length } to = To::longest;
  std::int64_t length = 0;       // of To::length
  std::int64_t multiple_of = 0;  // 0: of none
  Side side = Side::right;
  std::uint32_t id = 0, type_id = 0;
};

// Cuts one text or two (`second` may be null) so that both with `specials` more tokens have at most truncation.length;
// what is cut off becomes their overflow. What cannot be cut that far by its strategy is an Error that says the
// lengths.
void truncate(Encoding& first, Encoding* second, std::int64_t specials, const Truncation& truncation);

// Makes all as long as the longest, or as asked; an encoding's overflow, too. None is cut.
void pad(std::vector<Encoding>& encodings, const Padding& padding);

}  // namespace keel
