#include "config_questions.h"

#include <unistd.h>

#include <algorithm>
#include <istream>
#include <optional>
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/config/resolver.h"
#include "keel/config/schema.h"
#include "keel/config/values.h"
#include "keel/config/yaml_reader.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/config.h"
#include "keel/trainer/config_keys.h"
#include "whole_number.h"

namespace keel::cli {
namespace {

// In the order of asking; sections stand together, and what a row depends on comes before it. Of those that a task does
// not have, nothing is asked.
constexpr std::string_view kAsked[] = {
    "task.type",    "data.type",   "data.path",      "data.tokenizer", "data.digits",  "model.name",
    "model.layers", "model.heads", "model.width",    "model.block",    "batch.global", "batch.micro",
    "epochs",       "steps",       "optimizer.type", "optimizer.lr",   "precision"};

class Interview {
 public:
  Interview(const std::shared_ptr<const ConfigKeys>& keys, const Words& given, bool defaults, std::istream& in,
            std::ostream& out)
      : keys_(keys), given_(given), defaults_(defaults), in_(in), out_(out) {
    config_.keys = keys;
    config_.task = keys->tasks().standard().name;
  }

  Answers run() {
    for (const std::string_view key : kAsked) {
      if (key == "task.type" && keys_->tasks().entries().size() == 1) continue;
      if (const SchemaRow* row = row_of(key)) ask(*row);
      if (!section_of(key).empty()) add_given(section_of(key));
    }
    add_given("");
    Answers answers = {text(), 1};
    if (!defaults_) answers.ranks = ask_ranks();
    return answers;
  }

 private:
  // The one that applies; null: none.
  const SchemaRow* row_of(std::string_view key) const {
    for (const SchemaRow& row : config_.schema().rows()) {
      if (row.key != key || row.fixed) continue;
      if (row.when.key.empty()) return &row;
      for (const SchemaRow& other : config_.schema().rows())
        if (other.key == row.when.key && row.when.accepts(value_text(other, config_))) return &row;
    }
    return nullptr;
  }

  std::string standard_of(const SchemaRow& row) const {
    if (!row.standard.starts_with('=')) return std::string(row.standard);
    for (const SchemaRow& other : config_.schema().rows())
      if (other.key == row.standard.substr(1)) return value_text(other, config_);
    return "";
  }

  void set(const SchemaRow& row, const std::string& value) {
    YamlDocument document = read_yaml(value);
    if (!document.problems.empty()) throw Error(document.problems[0].message);
    set_value(row, config_, document.root);
  }

  void ask(const SchemaRow& row) {
    const std::string standard = standard_of(row);
    if (const auto said = written_value("", given_, row.key)) return set(row, *said);
    if (defaults_ && !standard.empty()) return set(row, standard);
    for (;;) {
      out_ << row.help << '\n' << row.key << " (" << describe_values(row) << ')';
      if (!standard.empty()) out_ << " [" << standard << ']';
      std::string answer = read_line(row.key);
      try {
        if (answer.empty() && standard.empty()) throw Error("has no default");
        set(row, answer.empty() ? standard : answer);
        if (!answer.empty()) answers_.emplace_back(row.key, value_text(row, config_));
        return;
      } catch (const Error& error) { complain(concat(row.key, ": ", error.what())); }
    }
  }

  int ask_ranks() {
    for (;;) {
      out_ << "Ranks that train together; each has a GPU or a part of the processor.\nranks (a whole number >= 1) [1]";
      const std::string answer = read_line("ranks");
      if (answer.empty()) return 1;
      if (const auto ranks = whole_number(answer); ranks && *ranks >= 1) return *ranks;
      complain(concat("ranks: expects a whole number >= 1, got '", answer.substr(0, 60), "'"));
    }
  }

  std::string read_line(std::string_view key) {
    out_ << ": " << std::flush;
    std::string line;
    if (!std::getline(in_, line)) throw Error(concat("the answers end before ", key, "; nothing is written"));
    if (::isatty(STDIN_FILENO) == 0) out_ << '\n';
    const std::size_t first = line.find_first_not_of(" \t\r"), last = line.find_last_not_of(" \t\r");
    return first == std::string::npos ? "" : line.substr(first, last - first + 1);
  }

  // Asks again on a terminal alone: nobody sees the question on a pipe.
  void complain(const std::string& what) {
    if (::isatty(STDIN_FILENO) == 0) throw Error(printable(what));
    out_ << printable(what) << '\n';
  }

  // What was given of the section, behind its answers.
  void add_given(std::string_view section) {
    std::erase_if(given_left_, [&](const std::string& each) {
      const std::size_t equals = each.find('=');
      if (equals == std::string::npos) throw Error(concat("'", each, "': expects KEY=VALUE, as in optimizer.lr=3e-4"));
      const std::string key = each.substr(0, equals);
      if (!section.empty() && section_of(key) != section && key != section) return false;
      answers_.emplace_back(key, each.substr(equals + 1));
      return true;
    });
  }

  std::string text() const {
    std::string yaml;
    std::vector<std::string> sections;
    for (const auto& [key, value] : answers_) {
      const std::string section(section_of(key));
      if (section.empty()) {
        yaml += concat(key, ": ", value, '\n');
        continue;
      }
      if (std::find(sections.begin(), sections.end(), section) != sections.end()) continue;
      sections.push_back(section);
      yaml += concat(section, ":\n");
      for (const auto& [other, its_value] : answers_)
        if (section_of(other) == section) yaml += concat("  ", other.substr(section.size() + 1), ": ", its_value, '\n');
    }
    return yaml;
  }

  std::shared_ptr<const ConfigKeys> keys_;
  Words given_;
  bool defaults_;
  std::istream& in_;
  std::ostream& out_;
  Config config_;
  Words given_left_ = given_;
  std::vector<std::pair<std::string, std::string>> answers_;
};

}  // namespace

Answers ask_questions(const std::shared_ptr<const ConfigKeys>& keys, const Words& given, bool defaults,
                      std::istream& in, std::ostream& out) {
  return Interview(keys, given, defaults, in, out).run();
}

}  // namespace keel::cli
