#pragma once
// Configuration files of other trainers, described as data: how a kind of file is known by its content, and what
// becomes of each of its keys.
//
// Reading (reading.h), messages, the table of `keel config --from` and docs/foreign.md are made of these rows, and
// nothing else knows a key of another trainer. A new kind is a file with its rows and a line in kinds.cpp.

#include <span>
#include <string>
#include <string_view>

#include "keel/config/key_role.h"
#include "keel/config/yaml_reader.h"

namespace keel {

class ForeignReading;

// A key with its value, where it stands.
struct ForeignEntry {
  std::string file;
  std::string key;  // "zero_optimization.stage"
  int line = 1;
  YamlNode value;
};

using ForeignReader = void (*)(ForeignReading& reading, const ForeignEntry& entry);

struct ForeignRow {
  enum class Way : unsigned char {
    taken,    // keel does so, or it changes no result
    mapped,   // it becomes keys of keel's
    refused,  // unless its value is one of `fine`, which asks for nothing
  };
  // Its path. ".*" at the end stands for all keys there that have no row of their own.
  std::string_view key;
  Way way = Way::taken;
  // Keel's keys, "batch.micro|batch.global". Without `read` the value is that of the first, or of the key there that
  // has the same last word as `to` has a "*". Where this program has no such key, the row is refused.
  std::string_view to = {};
  std::string_view note = {};  // what is done with it, or why it is refused
  ForeignReader read = nullptr;
  // Of a refused key: "false|0"; of a mapped one: "no=fp32|bf16=bf16", all words that it may have.
  std::string_view values = {};
  // Of keys or sections of keel's, "task|data": where the user's own KEY=VALUE gives one, the row does not count.
  std::string_view answered_by = {};
  std::string_view automatic = {};  // what `auto` means where the user says nothing; empty: then it is refused
  // In place of `to`: the key of the task that is trained. Where it has none, the row is refused.
  KeyRole role = KeyRole::none;
};

struct ForeignKind {
  std::string_view name;   // "hps", as --kind and pages call it
  std::string_view title;  // "an hps: file"
  std::string_view signs;  // keys at its top by which it is known, "a|b"
  // How a person who had it before ran it, or what else to know: one paragraph of the page.
  std::string_view about;
  std::span<const ForeignRow> rows;
  // What its trainer does where no key says so; called when all keys were read.
  void (*finish)(ForeignReading& reading) = nullptr;
  bool has_auto = false;  // whether "auto" is a value that something else says
  // Its keys may stand in mappings of any name, so rows have last words alone.
  bool is_nested = false;
  // Numbers in quotes are numbers, as its trainer reads them.
  bool reads_texts = false;
  // Where it is nested: a section that has one of `aside_signs`, and no other keys than `aside_keys`, is of prediction,
  // and nothing follows from it.
  std::string_view aside_signs = {}, aside_keys = {};
  // Of a key of the task that such a file is for; none: the file does not say what is trained.
  KeyRole task_role = KeyRole::none;
};

// All kinds, in the order of documentation.
std::span<const ForeignKind* const> foreign_kinds();
// By the keys at the top; null: a file of keel's own, or of no known kind.
const ForeignKind* kind_of(const YamlNode& root);

namespace foreign {

extern const ForeignKind kHps, kParameters, kAccelerate, kDeepSpeed, kConfigsJson;

// Rows, for tables that are read.
constexpr ForeignRow taken(std::string_view key, std::string_view note) {
  return {key, ForeignRow::Way::taken, {}, note};
}
constexpr ForeignRow mapped(std::string_view key, std::string_view to, std::string_view note = {}) {
  return {key, ForeignRow::Way::mapped, to, note};
}
constexpr ForeignRow mapped(std::string_view key, std::string_view to, ForeignReader read, std::string_view note = {}) {
  return {key, ForeignRow::Way::mapped, to, note, read};
}
constexpr ForeignRow mapped(std::string_view key, KeyRole role, std::string_view note = {},
                            ForeignReader read = nullptr) {
  ForeignRow row = mapped(key, {}, read, note);
  row.role = role;
  return row;
}
// `words`: "no=fp32|bf16=bf16".
constexpr ForeignRow words(std::string_view key, std::string_view to, std::string_view all,
                           std::string_view note = {}) {
  ForeignRow row = mapped(key, to, note);
  row.values = all;
  return row;
}
constexpr ForeignRow refused(std::string_view key, std::string_view why, std::string_view fine = {}) {
  ForeignRow row = {key, ForeignRow::Way::refused, {}, why};
  row.values = fine;
  return row;
}
constexpr ForeignRow answered(ForeignRow row, std::string_view by) {
  row.answered_by = by;
  return row;
}
constexpr ForeignRow with_reader(ForeignRow row, ForeignReader read) {
  row.read = read;
  return row;
}
constexpr ForeignRow with_auto(ForeignRow row, std::string_view meaning) {
  row.automatic = meaning;
  return row;
}

}  // namespace foreign
}  // namespace keel
