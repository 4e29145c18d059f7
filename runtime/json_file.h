#pragma once
// Files of JSON, whose errors name them.

#include <string>
#include <string_view>

#include "keel/runtime/json.h"

namespace keel {

// The text of the file `path`, which has been read: where it is no JSON, a JsonError that names the file.
Json parse_json_file(std::string_view text, const std::string& path);
// The same of the file itself; one that cannot be read is an Error of kind io.
Json read_json_file(const std::string& path);

}  // namespace keel
