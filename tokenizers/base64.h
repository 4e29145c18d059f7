#pragma once
// Bytes as text (RFC 4648, section 4).

#include <string>
#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

std::string encode_base64(std::string_view bytes);
// What is no base64, with its padding, is an Error.
std::string decode_base64(std::string_view text);

}  // namespace keel
