#pragma once
// JSON texts that end with a hash of themselves, so that no change of them goes unnoticed.

#include <string>
#include <string_view>

#include "keel/runtime/xxh3.h"

namespace keel {

// The text of an object, which ends with "\n}\n", with its hash as the last member.
std::string with_seal(std::string text);
// Whether a text ends with its hash. One that differs is an Error that names `file`.
bool check_seal(std::string_view text, const std::string& file);

// Hashes as 32 hexadecimal digits; another text is an Error.
std::string text_of(const Hash128& hash);
Hash128 parse_hash(std::string_view digits);

}  // namespace keel
