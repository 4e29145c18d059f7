#include "keel/tokenizers/valid_text.h"

#include <cstddef>
#include <string>
#include <string_view>

#include "keel/runtime/utf8.h"

namespace keel {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// Bytes, at least one, from `at` that could begin a character, where none is: the first byte, and those behind it that
// a valid character could have there (Unicode 15, table 3-7).
std::size_t bytes_of_bad_part(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(at);
  const std::size_t length = first >= 0xc2 && first <= 0xdf   ? 2
                             : first >= 0xe0 && first <= 0xef ? 3
                             : first >= 0xf0 && first <= 0xf4 ? 4
                                                              : 1;
  if (length == 1) return 1;
  const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(at + 1) < low || byte(at + 1) > high) return 1;
  std::size_t bytes = 2;
  while (bytes < length && byte(at + bytes) >= 0x80 && byte(at + bytes) <= 0xbf) ++bytes;
  return bytes;
}

}  // namespace

std::string_view valid_utf8(std::string_view text, std::string& storage) {
  std::size_t bad = find_bad_utf8(text);
  if (bad == std::string_view::npos) return text;
  storage.clear();
  storage.reserve(text.size() + 16);
  while (bad != std::string_view::npos) {
    storage += text.substr(0, bad);
    storage += kReplacement;
    text.remove_prefix(bad + bytes_of_bad_part(text, bad));
    bad = find_bad_utf8(text);
  }
  storage += text;
  return storage;
}

}  // namespace keel
