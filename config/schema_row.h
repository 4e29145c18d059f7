#pragma once
// A row of a schema: one key of a configuration, with all that parser, checks, help and pages say of it.

#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/config/key_role.h"
#include "keel/config/yaml_reader.h"

namespace keel {

class Settings;
struct KeyParts;
struct SchemaRow;

// Where the value of a key is kept: among Settings, or in a member of a struct that is Settings, too.
class KeyField {
 public:
  virtual ~KeyField() = default;
  // For people: "a number > 0", "AdamW or SGD".
  virtual std::string values(const SchemaRow& row) const = 0;
  // Throws Error saying what was expected ("expects a number > 0, got 'abc'"), or YamlError where it knows the line.
  virtual void set(const SchemaRow& row, Settings& settings, const YamlNode& node) const = 0;
  // The value as YAML, such that set() reads the same one back.
  virtual std::string text(const SchemaRow& row, const Settings& settings) const = 0;
  // Of a choice, "AdamW|SGD"; of others, empty.
  virtual std::string_view choices() const { return {}; }
  // Whether a mapping is a value of the key, and no section.
  virtual bool takes_mappings() const { return false; }
  // Of a list of mappings: their keys, which pages show below it. Null: it is none.
  virtual const KeyParts* parts() const { return nullptr; }
};
using FieldPtr = std::shared_ptr<const KeyField>;

// The numbers that a key accepts.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;
  bool contains(double value) const;
};

// A row applies when `key` (a choice in an earlier row) has one of `values`, written "a|b", or, with `except`, another
// one; without a key, always.
struct Condition {
  std::string_view key;
  std::string_view values;
  bool except = false;
  bool accepts(std::string_view value) const;
};

// What it means that a run which goes on from a checkpoint has another value of a key.
enum class OnResume : unsigned char {
  warns,    // from here on the training is another one
  refuses,  // the checkpoint's numbers belong to another model
  paces,    // part of the curve of learning rates, which is compared as a whole
  ignores,  // the same training, wherever and however it is computed, told and kept
};

// Texts live as long as the schema that has the row.
struct SchemaRow {
  std::string_view key;  // "optimizer.lr"
  FieldPtr field;
  // As YAML; empty: the key is required; "=batch.global": the value of that earlier key; <name> in a text:
  // the name of the file, without folder and extension.
  std::string_view standard;
  Range range;
  Condition when;
  std::string_view help;                // one line, with the unit
  std::string_view known_as = {};       // "learning_rate|max_lr": other programs' words, for suggestions
  std::string_view aliases = {};        // their words that are read as this key
  std::string_view ratio_aliases = {};  // those among them that make a whole number a ratio: "warmup_ratio"
  OnResume on_resume = OnResume::warns;
  bool fixed = false;  // where it applies the value is `standard`, which nobody gives: no key, and on no page
  KeyRole role = KeyRole::none;
  bool asked = false;  // `keel config` asks for it, though it has a default
};

// The parts of "a|b|c"; none for an empty text.
std::vector<std::string_view> split_choices(std::string_view choices);
// "a, b or c".
std::string listed(std::string_view choices);

inline void set_value(const SchemaRow& row, Settings& settings, const YamlNode& node) {
  row.field->set(row, settings, node);
}
inline std::string value_text(const SchemaRow& row, const Settings& settings) { return row.field->text(row, settings); }
inline std::string describe_values(const SchemaRow& row) { return row.field->values(row); }
std::string describe_default(const SchemaRow& row);    // "required", "value of seed", "0.1"
std::string describe_condition(const SchemaRow& row);  // "optimizer.type is AdamW"; empty: always
// Of rows of one key, all of which depend on the same other.
std::string describe_conditions(std::span<const SchemaRow> rows);

}  // namespace keel
