#pragma once
// Examples as bytes, for caches on disk of this machine.

#include <cstdint>
#include <string>
#include <string_view>

#include "keel/data/dataset.h"

namespace keel {

void append_bytes(std::string& bytes, const Example& example);
// An Error where the bytes are no example, or more than one.
Example example_from(std::string_view bytes);
// Elements of the longest sequence or text; 1 for a number.
std::int64_t longest_field(const Example& example);

}  // namespace keel
