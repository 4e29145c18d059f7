#pragma once
// Scripts of characters, as the UnicodeScripts pre-tokenizer tells them apart.

#include <cstdint>

#include "keel/runtime/language.h"

namespace keel {

inline constexpr std::uint8_t kAnyScript = 0;  // goes with every other: the space, and what has no script

// A number for each script, Hiragana and Katakana having that of Han.
std::uint8_t script_of(char32_t character);

}  // namespace keel
