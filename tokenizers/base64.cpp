#include "keel/tokenizers/base64.h"

#include <array>
#include <cstdint>

#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<std::int8_t, 256> kDigitValues = [] {
  std::array<std::int8_t, 256> values{};
  for (std::int8_t& value : values) value = -1;
  for (std::size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<std::int8_t>(i);
  return values;
}();

}  // namespace

std::string encode_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t taken = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8 | (i < taken ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (std::size_t i = 0; i < 4; ++i) text += i <= taken ? kDigits[group >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

std::string decode_base64(std::string_view text) {
  KEEL_CHECK(text.size() % 4 == 0, "base64 has a multiple of 4 characters, and this text has ", text.size());
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (std::size_t at = 0; at < text.size(); at += 4) {
    std::size_t digits = 4;
    if (at + 4 == text.size())
      while (digits > 2 && text[at + digits - 1] == '=') --digits;
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const int value = i < digits ? kDigitValues[static_cast<unsigned char>(text[at + i])] : 0;
      KEEL_CHECK(value >= 0, "character ", at + i, " of this text is none of base64");
      group = group << 6 | static_cast<std::uint32_t>(value);
    }
    for (std::size_t i = 0; i + 1 < digits; ++i) bytes += static_cast<char>(group >> (16 - 8 * i) & 255);
  }
  return bytes;
}

}  // namespace keel
