#pragma once
// How a configuration is put together: config.cpp reads it, config_checks.cpp checks that its values go together.

#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/error.h"
#include "keel/trainer/config.h"
#include "keel/trainer/schema.h"
#include "keel/trainer/yaml_reader.h"

namespace keel {

inline constexpr int kNoLine = std::numeric_limits<int>::max();

// Where a value was written: a line of the file, or an override.
struct WrittenPlace {
  int line = kNoLine;
  int override_number = 0;  // from 1; 0: in the file
  std::string text;         // "c.yaml:7" or "command line, 'steps=x'"
  auto order() const { return std::pair(override_number, line); }
};

struct Problem {
  WrittenPlace place;
  std::string message;
  ErrorKind kind = ErrorKind::input;
};

struct Given {
  std::string key;  // "optimizer.lr"
  YamlNode value;   // a mapping only where it is empty or deeper than sections go
  WrittenPlace place;
};

// Turns what was written into a Config and collects everything that is wrong with it.
class Resolver {
 public:
  // `source`: of the overrides.
  Resolver(std::string_view name, std::string_view source) : name_(name), source_(source) {}

  void add_file(std::string_view yaml);
  void add_overrides(const std::vector<std::string>& texts);
  Config resolve();
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  WrittenPlace file_place(int line) const { return {line, 0, concat(name_, ":", line)}; }
  WrittenPlace missing_place(std::string_view key) const;
  void report(const WrittenPlace& place, std::string message) { problems_.push_back({place, std::move(message)}); }
  void report_key(std::string_view key, const WrittenPlace& place, std::string_view message) {
    report(place, concat(key, ": ", message));
    mark_broken(key);
  }
  void mark_broken(std::string_view key_or_section);

  void add_override(const std::string& text);
  void add(std::string_view written, YamlNode value, const WrittenPlace& place, std::vector<Given>& out);
  void flatten(const std::string& prefix, const YamlNode& mapping, const WrittenPlace* override_place,
               std::vector<Given>& out);
  const Given* find(std::string_view key) const;
  bool is_retired(const Given& given);
  void check_names();
  std::optional<std::string> choice_of(std::string_view key) const;
  void resolve_key(std::span<const SchemaRow> rows);
  void refuse_for_all(std::span<const SchemaRow> rows, const Given& given);
  void resolve_default(const SchemaRow& row);
  const Given* replacement_of(std::string_view choice, const Given& given) const;
  void leave_out(const Given& given, std::string_view why);
  void leave_out_replaced_rate();
  void check_together();
  void check_strategy();
  void check_optimizer();
  void check_closure(std::string_view name);
  void check_compression();
  void require(bool holds, std::initializer_list<std::string_view> keys, std::string_view message,
               ErrorKind kind = ErrorKind::input, std::string_view shown = {});
  void check_schedule_of_rates();

  std::string name_, source_;
  std::vector<Given> given_;
  std::vector<Problem> problems_;
  std::vector<std::string> notes_;
  std::set<std::string, std::less<>> broken_;  // keys whose value is unknown after an error
  bool readable_ = true;
  bool is_deepspeeds_ = false;  // the section `optimizer`
  int overrides_ = 0;
  Config config_;
};

}  // namespace keel
