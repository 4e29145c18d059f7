#pragma once
// White space, as Unicode has it, at the ends of texts that are valid UTF-8.

#include <cstddef>
#include <string_view>

#include "keel/tokenizers/encoding.h"
#include "keel/tokenizers/unicode.h"

namespace keel {

inline bool is_white_space(char32_t c) { return CharacterTable::get()[c].is_white_space(); }

// Where the character begins that ends a text, which is not empty.
inline std::size_t last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

// Bytes of white space at the front and at the end of a text.
inline std::size_t leading_space_bytes(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    if (!is_white_space(next_character(text, at))) return begin;
  }
  return text.size();
}
inline std::size_t trailing_space_bytes(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t begin = last_character(text.substr(0, end));
    std::size_t at = begin;
    if (!is_white_space(next_character(text, at))) break;
    end = begin;
  }
  return text.size() - end;
}

// White space, and the character that the byte level writes for a space, at both ends.
TokenSpaces spaces_of(std::string_view token);

}  // namespace keel
