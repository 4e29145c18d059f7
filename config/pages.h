#pragma once
// The keys of a schema as pages: plain text for a terminal, and Markdown.

#include <functional>
#include <string>
#include <string_view>

#include "keel/config/schema.h"

namespace keel {

// The text as it stands in a cell of a Markdown table, which a vertical bar would end.
std::string table_cell(std::string_view text);

// Each key with default, condition, values and meaning, in lines of at most 120 characters.
std::string key_help(const Schema& schema);
// Of the rows that `shows` says.
std::string key_help(const Schema& schema, const std::function<bool(const SchemaRow& row)>& shows);
// A table of the rows that `shows` says.
std::string key_table(const Schema& schema, const std::function<bool(const SchemaRow& row)>& shows);
// A table of the keys of a section; of those at the top level where its name is empty.
std::string key_table(const Schema& schema, std::string_view section);
// A table for each section, under a heading.
std::string key_tables(const Schema& schema);

}  // namespace keel
