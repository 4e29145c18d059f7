#include "keel/tokenizers/byte_tokens.h"

#include <string>
#include <string_view>

namespace keel {

std::array<std::uint32_t, 256> byte_tokens(const Vocabulary& vocabulary) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::array<std::uint32_t, 256> tokens;
  std::string text = "<0x00>";
  for (unsigned byte = 0; byte < 256; ++byte) {
    text[3] = kDigits[byte / 16];
    text[4] = kDigits[byte % 16];
    tokens[byte] = vocabulary.find(text);
  }
  return tokens;
}

}  // namespace keel
