#pragma once
// Texts that are valid UTF-8, whatever bytes they were.

#include <string>
#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

// The text itself where it is valid UTF-8; otherwise `storage`, with one U+FFFD for each maximal part of a character,
// as Python's bytes.decode("utf-8", "replace") writes (Unicode 15, section 3.9, "Substitution of Maximal Subparts").
std::string_view valid_utf8(std::string_view text, std::string& storage);

}  // namespace keel
