#include "keel/trainer/schema_names.h"

#include <algorithm>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/trainer/schema.h"

namespace keel {
namespace {

// Whether "a|b|c" has the word.
bool lists(std::string_view words, std::string_view word) {
  for (std::size_t at = words.find(word); at != std::string_view::npos; at = words.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == '|') && (end == words.size() || words[end] == '|')) return !word.empty();
  }
  return false;
}

}  // namespace

bool is_inside(std::string_view key, std::string_view section) {
  return key.size() > section.size() && key.starts_with(section) && key[section.size()] == '.';
}
bool is_section(std::string_view key) {
  return std::any_of(schema().begin(), schema().end(), [&](const auto& row) { return is_inside(row.key, key); });
}
bool is_key(std::string_view key) {
  return std::any_of(schema().begin(), schema().end(), [&](const auto& row) { return row.key == key; });
}

std::string_view section_of(std::string_view key) {
  return key.substr(0, key.find('.') == std::string_view::npos ? 0 : key.rfind('.'));
}

YamlNode as_ratio(YamlNode value) {
  if (value.text.find_first_not_of("0123456789") == std::string::npos && !value.text.empty()) value.text += ".0";
  return value;
}

std::string own_key(std::string_view key, YamlNode& value) {
  const std::string_view section = section_of(key), word = key.substr(key.rfind('.') + 1);
  for (const SchemaRow& row : schema()) {
    if (section_of(row.key) != section) continue;
    if (lists(row.aliases, word)) return std::string(row.key);
    if (!lists(row.ratio_aliases, word)) continue;
    value = as_ratio(std::move(value));
    return std::string(row.key);
  }
  return std::string(key);
}

std::string likely_key(std::string_view key) {
  if (key.size() > 64) return "";
  const std::string_view section = section_of(key), word = key.substr(key.rfind('.') + 1);
  const bool known = is_section(section);
  std::vector<std::string_view> names, meant;
  const auto add = [&](std::string_view name, std::string_view key_meant) {
    names.push_back(name);
    meant.push_back(key_meant);
  };
  for (const SchemaRow& row : schema()) {
    const std::string_view home = section_of(row.key);
    if (known && home != section) continue;
    add(known ? row.key.substr(home.size() + 1) : row.key, row.key);
    for (const std::string_view words : {row.known_as, row.aliases, row.ratio_aliases})
      for (const std::string_view name : split_choices(words)) add(name, row.key);
    if (!known && !home.empty()) add(home, home);
  }
  if (const std::string close = nearest(known ? word : key, names); !close.empty())
    return std::string(meant[static_cast<std::size_t>(std::find(names.begin(), names.end(), close) - names.begin())]);
  for (const SchemaRow& row : schema())
    if (row.key.substr(row.key.rfind('.') + 1) == word) return std::string(row.key);
  return "";
}

std::string where_keys_are(std::string_view section) {
  std::string list;
  std::string_view previous;
  for (const SchemaRow& row : schema()) {
    if (section.empty() || section_of(row.key) != section || row.key == previous) continue;
    list += concat(list.empty() ? " has " : ", ", row.key.substr(section.size() + 1));
    previous = row.key;
  }
  return list.empty() ? "; `keel train --help-config` lists all keys" : concat("; ", section, list);
}

}  // namespace keel
