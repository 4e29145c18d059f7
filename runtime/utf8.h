#pragma once
// UTF-8, strictly: no overlong forms, no surrogates, nothing beyond U+10FFFF (RFC 3629).

#include <cstddef>
#include <string>
#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 0;  // 0: there is no valid character here
};

// The character that begins at byte `at`, which must lie inside the text.
CodePoint decode_utf8(std::string_view text, std::size_t at);
// Where the first byte lies that is no part of a character; npos where all are.
std::size_t find_bad_utf8(std::string_view text);
void append_utf8(std::string& text, char32_t character);

}  // namespace keel
