#include <map>

#include "keel/runtime/error.h"
#include "keel/trainer/config.h"
#include "keel/trainer/schema.h"

namespace keel {

std::string to_yaml(const Config& config) {
  std::string text;
  std::string section;
  std::map<std::string_view, std::string> values;
  for (const SchemaRow& row : schema()) {
    const auto chosen = values.find(row.when.key);
    if (!row.when.accepts(chosen == values.end() ? "" : chosen->second)) continue;
    const std::string& value = values[row.key] = value_text(row, config);
    const std::size_t dot = row.key.find('.');
    const std::string_view parent = dot == std::string_view::npos ? "" : row.key.substr(0, dot);
    if (parent.empty()) {
      text += concat(row.key, ": ", value, "\n");
    } else {
      if (parent != section) text += concat(parent, ":\n");
      text += concat("  ", row.key.substr(dot + 1), ": ", value, "\n");
    }
    section = parent;
  }
  return text;
}

}  // namespace keel
