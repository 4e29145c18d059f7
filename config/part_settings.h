#pragma once
// Values of a mapping within a list: {path: a.bin, weight: 0.7}.

#include <string>
#include <string_view>

#include "keel/config/schema.h"
#include "keel/config/settings.h"

namespace keel {

// By a schema without conditions, whose keys have no section. A YamlError says what is wrong first, and where:
// "[1].path:
// ...". `owner`: what has no such key; `except`: an entry that is none of them.
Settings read_part(const Schema& schema, const YamlNode& node, const std::string& where, std::string_view owner,
                   std::string_view except = {});
// "path: a.bin, weight: 0.7": every value.
std::string part_text(const Schema& schema, const Settings& part);

// Calls f; what it throws is told as wrong with that place.
template <class F>
auto at_place(const std::string& where, int line, const F& f) {
  try {
    return f();
  } catch (const Error& error) { throw YamlError(line, concat(where, ": ", error.what())); }
}

}  // namespace keel
