#pragma once
// Keys of a configuration that a task or a model brings along, and the values that a run has of them.
//
// The layer `config` is the reader of configurations without the keys of training: rows, texts, checks and pages. It
// stands below tasks, so that a task can name its keys; the trainer's own rows (keel/trainer/schema.h) join them.

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "keel/config/key_role.h"
#include "keel/runtime/error.h"

namespace keel {

class Schema;
struct SchemaRow;

enum class KeyType : unsigned char { flag, integer, number, text, path, choice, integers, numbers, texts, parts };

// What it means that a run which goes on from a checkpoint has another value of a key.
enum class ResumeRule : unsigned char {
  by_section,  // refuses for `model`, warns for others
  refuses,     // the checkpoint's numbers belong to another model
  warns,       // from here on the training is another one
  ignores,     // the same training
};

struct KeyParts;

// A key of the section `task`, `model`, `data` or `eval`: "model.width". Texts live as long as the program. The same
// row gives parser, checks, --help-config, docs/config.md and the resolved file, as keel's own rows do. A key whose
// default depends on another key has one row for each case, next to each other.
struct KeyRow {
  std::string_view key;  // "task.classes": a section, a dot, and letters, digits and _
  KeyType type = KeyType::text;
  std::string_view standard = {};  // as YAML; empty: the key is required; "=seed": the value of that earlier key
  std::string_view help = {};      // one line, with the unit
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  std::string_view choices = {};  // of a choice: "a|b|c"
  // It applies where an earlier choice, flag or text, of the task's or keel's, has one of these values, or, with
  // when_other, another one; without a key, always.
  std::string_view when_key = {}, when_values = {};
  bool when_other = false;
  ResumeRule on_resume = ResumeRule::by_section;
  std::string_view known_as = {};  // "n_layer|depth": other programs' words, for suggestions; none is read as the key
  bool low_open = false, high_open = false;  // the limit itself is refused
  // Where the condition holds, the choice decides the value: it is `standard`, and nobody may give another one.
  bool fixed = false;
  // Of parts: the keys that each of them has, which lives as long as the program.
  const KeyParts* parts = nullptr;
  KeyRole role = KeyRole::none;
  bool asked = false;  // `keel config` asks for it, though it has a default; it asks for what has none anyway
};

// Keys of the mappings in a list, such as [{path: a.bin, weight: 2}, {path: b.bin}]: names without a section, without
// conditions, without "=key" as a default.
struct KeyParts {
  std::string_view name;  // of one: "a source"
  std::vector<KeyRow> rows;
};

// What values ask of each other, and do not have: told at the last place that gave one of the keys, as what is wrong
// with the first.
struct SettingsComplaint {
  std::vector<std::string_view> keys;
  std::string message;
};

// The values of keys that are in no member of a struct, by key. Asking for a key that has none here, or by another
// type, is an Error of the program, which names those that have one; a value that a user gave was checked when the
// configuration was read.
class Settings {
 public:
  using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>,
                             std::vector<std::string>, std::vector<Settings>>;

  Settings() = default;
  // For programs without a configuration file: defaults, and these texts in place of some, read and checked as those of
  // a file. An Error lists all that is wrong. No row depends on a key of keel's here.
  explicit Settings(std::span<const KeyRow> rows, std::span<const std::pair<std::string, std::string>> given = {});

  bool flag(std::string_view key) const;
  std::int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  const std::string& text(std::string_view key) const;  // of texts, paths and choices
  const std::vector<std::int64_t>& integers(std::string_view key) const;
  const std::vector<double>& numbers(std::string_view key) const;
  const std::vector<std::string>& texts(std::string_view key) const;
  const std::vector<Settings>& parts(std::string_view key) const;
  bool operator==(const Settings&) const = default;

 private:
  friend class StoredField;
  template <class T>
  const T& get(std::string_view key, std::string_view asked) const;
  std::vector<std::pair<std::string, Value>> values_;  // in the order of the rows
};

// What is wrong with a task's list of rows, a line each; empty: nothing. A key of another section, or one that is in
// `taken` (keys of others, which conditions and defaults may name), a key twice under the same condition or not next to
// each other, a default that its own row refuses, a choice without choices, limits that nothing is within, a condition
// on a key that is no earlier choice or flag, or on a value that it never has, two keys of one role, heads without
// their parts (keel/config/key_role.h).
std::string complaint_about(std::span<const KeyRow> rows, std::span<const std::string_view> taken);

// The rows as those of a schema whose Settings keep the values.
std::vector<SchemaRow> schema_rows(std::span<const KeyRow> rows);
// `base` and these rows in one order. In a section that both have, these stand first; new sections stand before all
// others, in their order. An Error where a condition or a default then names a later key.
std::shared_ptr<const Schema> joined(const Schema& base, std::span<const KeyRow> rows);

}  // namespace keel
