#pragma once
// The keys of a schema as pages: plain text for a terminal, and Markdown.

#include <string>

#include "keel/config/schema.h"

namespace keel {

// Each key with default, condition, values and meaning, in lines of at most 120 characters.
std::string key_help(const Schema& schema);
// A table for each section, under a heading.
std::string key_tables(const Schema& schema);

}  // namespace keel
