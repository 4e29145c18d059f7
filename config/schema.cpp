#include "keel/config/schema.h"

#include <algorithm>
#include <map>

#include "keel/runtime/error.h"

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

std::string_view section_of(std::string_view key) {
  return key.substr(0, key.find('.') == std::string_view::npos ? 0 : key.rfind('.'));
}

YamlNode as_ratio(YamlNode value) {
  if (value.text.find_first_not_of("0123456789") == std::string::npos && !value.text.empty()) value.text += ".0";
  return value;
}

Schema::Schema(std::vector<SchemaRow> rows, std::vector<RetiredKey> retired)
    : rows_(std::move(rows)), retired_(std::move(retired)) {
  std::string_view previous;
  for (const SchemaRow& row : rows_) {
    const auto require = [&](bool holds, const auto&... what) {
      if (!holds) throw Error(concat("schema: ", row.key, what...), ErrorKind::internal);
    };
    require(row.key == previous || !is_key(row.key), ": its rows are not next to each other");
    require(row.when.key.empty() || is_key(row.when.key), " depends on ", row.when.key, ", which is no earlier key");
    require(!row.standard.starts_with('=') || is_key(row.standard.substr(1)), " has the value of ",
            row.standard.substr(row.standard.empty() ? 0 : 1), " by default, which is no earlier key");
    keys_.insert(previous = row.key);
    for (std::string_view section = section_of(row.key); !section.empty(); section = section_of(section))
      sections_.insert(section);
  }
}

std::string_view Schema::key_of(KeyRole role) const {
  const auto found = std::ranges::find(rows_, role, &SchemaRow::role);
  return role == KeyRole::none || found == rows_.end() ? std::string_view() : found->key;
}

bool Schema::takes_mappings(std::string_view key) const {
  return std::any_of(rows_.begin(), rows_.end(),
                     [&](const SchemaRow& row) { return row.key == key && row.field && row.field->takes_mappings(); });
}

std::string Schema::own_key(std::string_view key, YamlNode& value) const {
  const std::string_view section = section_of(key), word = key.substr(key.rfind('.') + 1);
  for (const SchemaRow& row : rows_) {
    if (section_of(row.key) != section) continue;
    if (lists(row.aliases, word)) return std::string(row.key);
    if (!lists(row.ratio_aliases, word)) continue;
    value = as_ratio(std::move(value));
    return std::string(row.key);
  }
  return std::string(key);
}

std::string Schema::likely_key(std::string_view key) const {
  if (key.size() > 64) return "";
  const std::string_view section = section_of(key), word = key.substr(key.rfind('.') + 1);
  const bool known = is_section(section);
  std::vector<std::string_view> names, meant;
  const auto add = [&](std::string_view name, std::string_view key_meant) {
    names.push_back(name);
    meant.push_back(key_meant);
  };
  for (const SchemaRow& row : rows_) {
    const std::string_view home = section_of(row.key);
    if (known && home != section) continue;
    add(known ? row.key.substr(home.size() + 1) : row.key, row.key);
    for (const std::string_view words : {row.known_as, row.aliases, row.ratio_aliases})
      for (const std::string_view name : split_choices(words)) add(name, row.key);
    if (!known && !home.empty()) add(home, home);
  }
  if (const std::string close = nearest(known ? word : key, names); !close.empty())
    return std::string(meant[static_cast<std::size_t>(std::find(names.begin(), names.end(), close) - names.begin())]);
  for (const SchemaRow& row : rows_)
    if (row.key.substr(row.key.rfind('.') + 1) == word) return std::string(row.key);
  return "";
}

std::string Schema::where_keys_are(std::string_view section) const {
  std::string list;
  std::string_view previous;
  for (const SchemaRow& row : rows_) {
    if (section.empty() || section_of(row.key) != section || row.key == previous) continue;
    list += concat(list.empty() ? " has " : ", ", row.key.substr(section.size() + 1));
    previous = row.key;
  }
  return list.empty() ? "; `keel train --help-config` lists all keys" : concat("; ", section, list);
}

const RetiredKey* Schema::retired_for(std::string_view key) const {
  for (const RetiredKey& retired : retired_)
    if (retired.successor == key) return &retired;
  return nullptr;
}

std::vector<std::pair<const SchemaRow*, std::string>> applying_values(const Schema& schema, const Settings& settings) {
  std::vector<std::pair<const SchemaRow*, std::string>> applying;
  std::map<std::string_view, std::string> values;
  for (const SchemaRow& row : schema.rows()) {
    const auto chosen = values.find(row.when.key);
    if (!row.when.accepts(chosen == values.end() ? "" : chosen->second)) continue;
    const std::string& value = values[row.key] = value_text(row, settings);  // later rows depend on fixed ones, too
    if (!row.fixed) applying.emplace_back(&row, value);
  }
  return applying;
}

std::string to_yaml(const Schema& schema, const Settings& settings) {
  std::string text;
  std::string section;
  for (const auto& [row, value] : applying_values(schema, settings)) {
    const std::size_t dot = row->key.find('.');
    const std::string_view parent = dot == std::string_view::npos ? "" : row->key.substr(0, dot);
    if (parent.empty()) {
      text += concat(row->key, ": ", value, "\n");
    } else {
      if (parent != section) text += concat(parent, ":\n");
      text += concat("  ", row->key.substr(dot + 1), ": ", value, "\n");
    }
    section = parent;
  }
  return text;
}

}  // namespace keel
