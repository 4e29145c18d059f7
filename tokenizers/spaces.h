#pragma once
// White space, as Unicode has it, at the ends of texts.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "keel/runtime/utf8.h"
#include "keel/tokenizers/post_processor.h"

namespace keel {

// The property White_Space.
constexpr bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0d);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

// The character that ends a text that is not empty, which is valid UTF-8.
inline CodePoint last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return decode_utf8(text, at);
}

// Bytes of white space at the front and at the end of a text.
inline std::size_t leading_space_bytes(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const CodePoint character = decode_utf8(text, bytes);
    if (character.bytes == 0 || !is_white_space(character.value)) break;
    bytes += character.bytes;
  }
  return bytes;
}
inline std::size_t trailing_space_bytes(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const CodePoint character = last_character(text.substr(0, end));
    if (character.bytes == 0 || !is_white_space(character.value)) break;
    end -= character.bytes;
  }
  return text.size() - end;
}

// White space, and the character that the byte level writes for a space, at both ends.
TokenSpaces spaces_of(std::string_view token);

}  // namespace keel
