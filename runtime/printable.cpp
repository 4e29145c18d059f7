#include "keel/runtime/printable.h"

#include <algorithm>

#include "keel/runtime/error.h"
#include "keel/runtime/utf8.h"

namespace keel {
namespace {

bool is_shown(char32_t character) {
  const bool is_control = character < 0x20 || (character >= 0x7f && character < 0xa0);
  const bool turns = (character >= 0x202a && character <= 0x202e) || (character >= 0x2066 && character <= 0x2069);
  const bool breaks = character == 0x2028 || character == 0x2029;
  return !is_control && !turns && !breaks;
}

}  // namespace

std::string printable(std::string_view text, std::size_t most) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    if (shown.size() >= most) return concat(shown, "... (", text.size() - at, " more bytes)");
    const CodePoint point = decode_utf8(text, at);
    const std::size_t bytes = std::max<std::size_t>(point.bytes, 1);
    if (point.bytes > 0 && is_shown(point.value)) {
      shown += text.substr(at, bytes);
    } else {
      for (const char c : text.substr(at, bytes)) {
        const auto byte = static_cast<unsigned char>(c);
        shown += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
      }
    }
    at += bytes;
  }
  return shown;
}

std::string printable_lines(std::string_view text) {
  std::string shown;
  for (;;) {
    const std::size_t end = text.find('\n');
    shown += printable(text.substr(0, end));
    if (end == std::string_view::npos) return shown;
    shown += '\n';
    text.remove_prefix(end + 1);
  }
}

bool is_name(std::string_view text) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  return !text.empty() && text.find_first_not_of(kAllowed) == std::string_view::npos;
}

}  // namespace keel
