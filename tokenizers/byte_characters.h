#pragma once
// The 256 visible characters that byte-level tokenizers write bytes as.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

// Bytes to characters as GPT-2 chose them: a byte that is a visible character of Latin-1 is that character; the others,
// in their order, are U+0100 and those behind it. Every character takes one or two bytes of UTF-8.
class ByteCharacters {
 public:
  static constexpr char32_t kEnd = 0x144;  // one more than the last character
  static constexpr std::int16_t kNoByte = -1;

  static constexpr char32_t character(unsigned char byte) { return kTables.characters[byte]; }
  // kNoByte: the character is none of the 256.
  static constexpr std::int16_t byte(char32_t character) {
    return character < kEnd ? kTables.bytes[character] : kNoByte;
  }

  // Writes the characters of `bytes` to where there is place for two bytes of each; returns their end.
  static char* write(std::string_view bytes, char* to) {
    for (const char byte : bytes) {
      const Utf8& character = kTables.utf8[static_cast<unsigned char>(byte)];
      to[0] = character.bytes[0];
      to[1] = character.bytes[1];
      to += character.size;
    }
    return to;
  }
  // Appends the characters of `bytes`.
  static void append(std::string_view bytes, std::string& out);
  // Appends the bytes whose characters `text` has. False, and nothing is appended, where it has another character.
  static bool append_bytes(std::string_view text, std::string& out);

 private:
  struct Utf8 {
    char bytes[2] = {};
    std::uint8_t size = 0;
  };
  struct Tables {
    std::array<Utf8, 256> utf8{};
    std::array<char16_t, 256> characters{};
    std::array<std::int16_t, kEnd> bytes{};
  };
  static constexpr bool is_visible(int byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  }
  static constexpr Tables make_tables() {
    Tables tables;
    for (std::int16_t& byte : tables.bytes) byte = kNoByte;
    char16_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const char16_t character = is_visible(byte) ? static_cast<char16_t>(byte) : next++;
      tables.characters[static_cast<std::size_t>(byte)] = character;
      tables.utf8[static_cast<std::size_t>(byte)] =
          character < 0x80
              ? Utf8{{static_cast<char>(character), 0}, 1}
              : Utf8{{static_cast<char>(0xc0 | character >> 6), static_cast<char>(0x80 | (character & 0x3f))}, 2};
      tables.bytes[character] = static_cast<std::int16_t>(byte);
    }
    return tables;
  }
  static const Tables kTables;
};

inline constexpr ByteCharacters::Tables ByteCharacters::kTables = ByteCharacters::make_tables();

}  // namespace keel
