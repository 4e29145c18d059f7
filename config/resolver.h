#pragma once
// How the values of a configuration are put together: from a file, texts that replace some of it, and defaults.

#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/config/schema.h"
#include "keel/config/yaml_reader.h"
#include "keel/runtime/error.h"

namespace keel {

// The end of a message about a key that has to be given, and is not.
inline constexpr std::string_view kMissingValue = "is missing, and has no default";

// Turns what was written into values and collects everything that is wrong with it. Whose keys ask something of each
// other derives from it.
class Resolver {
 public:
  // Writes to `settings`, which the fields of the schema's rows know; both stay alive as long as this. `name` is what
  // messages call the file ("c.yaml"), `source` where they say that overrides are from.
  Resolver(const Schema& schema, Settings& settings, std::string_view name, std::string_view source)
      : schema_(schema), settings_(settings), name_(name), source_(source) {}
  virtual ~Resolver() = default;

  void add_file(std::string_view yaml);
  // A file that was read already: keys and values with their lines. Messages call it `file`.
  void add_tree(std::string_view file, const YamlNode& root);
  // KEY=VALUE, which replaces a value or a section.
  void add_override(const std::string& text);
  // Likewise those of a command line, where a shell may have cut one at its spaces.
  void add_overrides(const std::vector<std::string>& texts);
  // Sets the values that apply. One Error reports everything that is wrong, a line each, as `c.yaml:7: optimizer.lr:
  // ...`; it is of kind unsupported where nothing is wrong but that something is not offered yet.
  void resolve();
  // A line for each key of the file that was left out, because an override replaced the choice that it belongs to.
  const std::vector<std::string>& notes() const { return notes_; }

 protected:
  // Where a value was written: a line of the file, or an override.
  static constexpr int kNoLine = std::numeric_limits<int>::max();
  struct WrittenPlace {
    int line = kNoLine;
    int override_number = 0;  // from 1; 0: in a file
    std::string text;         // "c.yaml:7" or "command line, 'steps=x'"
    std::string file = {};    // "c.yaml"
    auto order() const { return std::pair(override_number, line); }
  };
  struct Given {
    std::string key;  // "optimizer.lr"
    YamlNode value;   // a mapping only where it is empty or deeper than sections go
    WrittenPlace place;
  };

  // Called when every key has its value, or is known to have none: what values ask of each other.
  virtual void check_together() {}
  // Whether the mapping that is written under this key is read as if its keys stood beside it.
  virtual bool is_read_through(std::string_view /*key*/) { return false; }

  // Reports `message` under the first of `keys`, or as `shown`, at the last place that gave one of them; not where the
  // value of one of them is unknown.
  void require(bool holds, std::span<const std::string_view> keys, std::string_view message,
               ErrorKind kind = ErrorKind::input, std::string_view shown = {});
  void require(bool holds, std::initializer_list<std::string_view> keys, std::string_view message,
               ErrorKind kind = ErrorKind::input, std::string_view shown = {}) {
    require(holds, std::span(keys.begin(), keys.size()), message, kind, shown);
  }
  const Given* find(std::string_view key) const;
  // Keys whose value is unknown after an error, and sections.
  const std::set<std::string, std::less<>>& broken() const { return broken_; }
  // The override that gave the choice, where the key is of the file; else null.
  const Given* replacement_of(std::string_view choice, const Given& given) const;
  void leave_out(const Given& given, std::string_view why);

 private:
  const SchemaRow* decision_on(std::string_view key) const;

  struct Problem {
    WrittenPlace place;
    std::string message;
    ErrorKind kind = ErrorKind::input;
  };

  WrittenPlace file_place(int line, const std::string& file) const { return {line, 0, concat(file, ":", line), file}; }
  WrittenPlace missing_place(std::string_view key) const;
  void report(const WrittenPlace& place, std::string message) { problems_.push_back({place, std::move(message)}); }
  void report_key(std::string_view key, const WrittenPlace& place, std::string_view message) {
    report(place, concat(key, ": ", message));
    mark_broken(key);
  }
  void mark_broken(std::string_view key_or_section);

  void add(std::string_view written, YamlNode value, const WrittenPlace& place, std::vector<Given>& out);
  void flatten(const std::string& prefix, const YamlNode& mapping, const WrittenPlace& place, std::vector<Given>& out);
  bool is_retired(const Given& given);
  void check_names();
  std::optional<std::string> choice_of(std::string_view key) const;
  void resolve_key(std::span<const SchemaRow> rows);
  void refuse_for_all(std::span<const SchemaRow> rows, const Given& given);
  void resolve_default(const SchemaRow& row);

  const Schema& schema_;
  Settings& settings_;
  std::string name_, source_;
  std::vector<Given> given_;
  std::vector<Problem> problems_;
  std::vector<std::string> notes_;
  std::set<std::string, std::less<>> broken_;
  bool readable_ = true;
  int overrides_ = 0;
};

// What the file and the texts that replace some of it say of a key, as it is written; nothing where they say nothing,
// or no single value. For a key that decides which schema the others belong to; what is wrong is left to that one.
std::optional<std::string> written_value(std::string_view yaml, const std::vector<std::string>& overrides,
                                         std::string_view key);

}  // namespace keel
