#include "keel/runtime/json_file.h"

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/printable.h"

namespace keel {

Json parse_json_file(std::string_view text, const std::string& path) {
  try {
    return Json::parse(text);
  } catch (const JsonError& error) { throw JsonError(concat("'", printable(path), "' is no JSON: "), error); }
}

Json read_json_file(const std::string& path) { return parse_json_file(read_text_file(path), path); }

}  // namespace keel
