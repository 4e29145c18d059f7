#include "keel/config/part_settings.h"

#include <algorithm>
#include <vector>

namespace keel {
namespace {

const SchemaRow& row_of_part(const Schema& schema, const std::string& key, std::string_view owner) {
  for (const SchemaRow& row : schema.rows())
    if (row.key == key) return row;
  std::string known;
  for (const SchemaRow& row : schema.rows()) known += concat(known.empty() ? "" : ", ", row.key);
  const std::string likely = schema.likely_key(key);
  throw Error(concat(owner, " has no such key",
                     likely.empty() ? concat("; it has ", known) : concat("; did you mean '", likely, "'?")));
}

}  // namespace

Settings read_part(const Schema& schema, const YamlNode& node, const std::string& where, std::string_view owner,
                   std::string_view except) {
  Settings part;
  for (const SchemaRow& row : schema.rows())
    if (!row.standard.empty()) set_value(row, part, read_yaml(row.standard).root);
  std::vector<std::string_view> given;
  for (const YamlEntry& entry : node.entries) {
    if (entry.key == except) continue;
    at_place(concat(where, '.', entry.key), entry.line, [&] {
      const SchemaRow& row = row_of_part(schema, entry.key, owner);
      set_value(row, part, entry.value);
      given.push_back(row.key);
    });
  }
  for (const SchemaRow& row : schema.rows())
    if (row.standard.empty() && std::find(given.begin(), given.end(), row.key) == given.end())
      throw YamlError(node.line, concat(where, '.', row.key, ": is missing, and has no default"));
  return part;
}

std::string part_text(const Schema& schema, const Settings& part) {
  std::string text;
  for (const SchemaRow& row : schema.rows())
    text += concat(text.empty() ? "" : ", ", row.key, ": ", value_text(row, part));
  return text;
}

}  // namespace keel
