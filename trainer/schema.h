#pragma once
// The table of all configuration keys: parser, checks, help and docs/config.md are made from it.
//
// A new key is a member of Config and a row in schema.cpp.

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "keel/trainer/config.h"
#include "keel/trainer/yaml_reader.h"

namespace keel {

// How a row reaches its member of Config; which alternative it is gives the type of the key. A text
// is a path, in which a leading ~ is the home folder.
template <class T>
using Access = T& (*)(Config&);
// One of `choices` ("AdamW|SGD"), by its place in the list.
struct ChoiceField {
  int (*get)(const Config&);
  void (*set)(Config&, int);
  std::string_view choices;
  std::string_view other_words = {};  // "Constant=constant|...": other spellings of a choice, which are read as well
};
// A parameter of the learning rate's schedule (keel/optim/schedule_table.h).
struct ScheduleField {
  const ScheduleUse* use;
};
// Text of its own grammar; `set` throws Error for what it does not read.
struct ParsedField {
  std::string (*get)(const Config&);
  void (*set)(Config&, std::string_view);
  std::string_view grammar;
};
using Field = std::variant<Access<bool>, Access<int>, Access<std::int64_t>, Access<std::uint64_t>, Access<double>,
                           Access<std::array<double, 2>>, Access<std::string>, Access<std::vector<GroupPattern>>,
                           ChoiceField, ParsedField, ScheduleField>;

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

struct SchemaRow {
  std::string_view key;  // "optimizer.lr"
  Field field;
  // As YAML; empty: the key is required; "=batch.global": the value of that earlier key; <name> in a text:
  // the name of the file, without folder and extension.
  std::string_view standard;
  Range range;
  Condition when;
  std::string_view help;                // one line, with the unit
  std::string_view known_as = {};       // "learning_rate|max_lr": other programs' words, for suggestions
  std::string_view aliases = {};        // their words that are read as this key
  std::string_view ratio_aliases = {};  // those among them that make a whole number a ratio: "warmup_ratio"
};

// All rows, in the order of documentation and resolved files. A key whose default depends on another key has
// one row for each case, next to each other.
std::span<const SchemaRow> schema();

// A key of older versions, which files that they wrote still hold. It is read where the key that took its place is not
// given.
struct RetiredKey {
  std::string_view key, successor;
  // The successor's value for an old one; `so_far` holds the keys before the successor's. An Error for a value that the
  // old key did not take.
  std::string_view (*value)(std::string_view old, const Config& so_far);
};
std::span<const RetiredKey> retired_keys();
// The one that `key` took the place of, or null.
const RetiredKey* retired_for(std::string_view key);

// Those of the section `optimizer`, made from the table of optimizers.
std::vector<SchemaRow> optimizer_rows();
// set_groups() reads a list of groups and throws YamlError; groups_text() writes one.
void set_groups(std::vector<GroupPattern>& groups, const YamlNode& node);
std::string groups_text(const std::vector<GroupPattern>& groups);
// Those of the section `scheduler`, made from the table of schedules.
std::vector<SchemaRow> scheduler_rows();
// Reads and writes a parameter of a schedule; its errors may be YamlErrors.
void set_schedule_value(const ScheduleUse& use, ScheduleSettings& settings, const YamlNode& node);
std::string schedule_field_text(const ScheduleUse& use, const ScheduleSettings& settings);

// The parts of "a|b|c"; none for an empty text.
std::vector<std::string_view> split_choices(std::string_view choices);

// Sets the row's member; throws Error saying what was expected ("expects a number > 0, got 'abc'").
void set_value(const SchemaRow& row, Config& config, const YamlNode& node);
// The member as YAML, such that set_value reads the same value back.
std::string value_text(const SchemaRow& row, const Config& config);

// A text as YAML: plain where that reads back as the same text, else in double quotes.
std::string text_to_yaml(std::string_view text);

// For people: "a number > 0", "AdamW or SGD", ...
std::string describe_values(const SchemaRow& row);
std::string describe_default(const SchemaRow& row);
std::string describe_condition(const SchemaRow& row);              // "optimizer.type is AdamW"; empty: always
std::string describe_conditions(std::span<const SchemaRow> rows);  // of one key, all of which depend on the same other

std::string config_help();         // plain text, for `keel train --help-config`
std::string config_reference();    // Markdown: docs/config.md
std::string schedule_reference();  // Markdown: docs/schedules.md
std::string_view config_example();

}  // namespace keel
