#pragma once
// A schema: the rows of all keys that a configuration may have, in the order of documentation and resolved files.
//
// Parser, checks, help, pages and resolved files are made from it (keel/config/resolver.h, keel/config/pages.h).

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/config/schema_row.h"
#include "keel/config/yaml_reader.h"

namespace keel {

// A key of older versions, which files that they wrote still hold. It is read where the key that took its place is not
// given.
struct RetiredKey {
  std::string_view key, successor;
  // The successor's value for an old one; `so_far` holds the keys before the successor's. An Error for a value that the
  // old key did not take.
  std::string_view (*value)(std::string_view old, const Settings& so_far);
};

class Schema {
 public:
  // A key whose default depends on another key has one row for each case, next to each other; conditions and "=key"
  // name earlier rows. An Error of the program names the row that does otherwise.
  explicit Schema(std::vector<SchemaRow> rows, std::vector<RetiredKey> retired = {});

  std::span<const SchemaRow> rows() const { return rows_; }
  bool is_section(std::string_view key) const { return sections_.contains(key); }
  bool is_key(std::string_view key) const { return keys_.contains(key); }
  // The one of this role; empty: there is none.
  std::string_view key_of(KeyRole role) const;
  bool takes_mappings(std::string_view key) const;

  // The key that `key` is another program's word for, or `key` itself; a word that says so makes the value a ratio.
  std::string own_key(std::string_view key, YamlNode& value) const;
  // The key that `key` was probably meant to be, by its own name or by other programs' word for it; empty when there is
  // none. In a section that exists only its keys are compared: a long section's name would make every key near.
  std::string likely_key(std::string_view key) const;
  // What to say about an unknown key that resembles none: the keys of its section, if there is such a section.
  std::string where_keys_are(std::string_view section) const;

  std::span<const RetiredKey> retired() const { return retired_; }
  // The one that `key` took the place of, or null.
  const RetiredKey* retired_for(std::string_view key) const;

 private:
  std::vector<SchemaRow> rows_;
  std::vector<RetiredKey> retired_;
  std::set<std::string_view> keys_, sections_;
};

bool is_inside(std::string_view key, std::string_view section);
std::string_view section_of(std::string_view key);
// `1` as `1.0`, which counts as a ratio.
YamlNode as_ratio(YamlNode value);

// The rows that apply, in their order, with their values as YAML.
std::vector<std::pair<const SchemaRow*, std::string>> applying_values(const Schema& schema, const Settings& settings);
// The resolved file: every value that applies, defaults included.
std::string to_yaml(const Schema& schema, const Settings& settings);

}  // namespace keel
