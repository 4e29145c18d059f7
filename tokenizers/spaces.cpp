#include "keel/tokenizers/spaces.h"

#include <cstdint>

namespace keel {
namespace {

constexpr bool is_token_space(char32_t character) {
  constexpr char32_t kByteLevelSpace = 0x120;
  return character == kByteLevelSpace || is_white_space(character);
}

}  // namespace

TokenSpaces spaces_of(std::string_view token) {
  TokenSpaces spaces;
  for (std::size_t at = 0; at < token.size();) {
    const CodePoint character = decode_utf8(token, at);
    if (character.bytes == 0 || !is_token_space(character.value)) break;
    ++spaces.leading;
    at += character.bytes;
  }
  while (!token.empty()) {
    const CodePoint character = last_character(token);
    if (character.bytes == 0 || !is_token_space(character.value)) break;
    ++spaces.trailing;
    token.remove_suffix(character.bytes);
  }
  return spaces;
}

}  // namespace keel
