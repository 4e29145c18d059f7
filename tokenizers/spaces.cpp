#include "keel/tokenizers/spaces.h"

#include <cstdint>

namespace keel {
namespace {

bool is_token_space(char32_t character) {
  constexpr char32_t kByteLevelSpace = 0x120;
  return character == kByteLevelSpace || is_white_space(character);
}

}  // namespace

TokenSpaces spaces_of(std::string_view token) {
  TokenSpaces spaces;
  for (std::size_t at = 0; at < token.size() && is_token_space(next_character(token, at));) ++spaces.leading;
  while (!token.empty()) {
    const std::size_t begin = last_character(token);
    std::size_t at = begin;
    if (!is_token_space(next_character(token, at))) break;
    ++spaces.trailing;
    token = token.substr(0, begin);
  }
  return spaces;
}

}  // namespace keel
