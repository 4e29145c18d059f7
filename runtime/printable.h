#pragma once
// Text of unknown origin, made fit for a terminal and for one line of it.

#include <cstddef>
#include <string>
#include <string_view>

#include "keel/runtime/language.h"

namespace keel {

// The text with each control character, each byte that is no UTF-8 and each mark that turns the direction of writing as
// "\x1b"; of one that is longer than `most` bytes, the beginning and how much is left out.
std::string printable(std::string_view text, std::size_t most = 4000);
// The same for each of several lines, which stay lines.
std::string printable_lines(std::string_view text);

// Whether it is a name, of a field, weight, term or metric: letters, digits and _, and at least one.
bool is_name(std::string_view text);

}  // namespace keel
