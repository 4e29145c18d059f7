#include "config_questions.h"

#include <algorithm>
#include <istream>
#include <ostream>
#include <sstream>
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

using Keys = std::vector<std::string_view>;

constexpr std::string_view kTask = "task.type";

// Behind the task's own keys, in this order.
constexpr std::string_view kAskedOfAll[] = {"batch.global",   "batch.micro",  "epochs",   "steps",
                                            "optimizer.type", "optimizer.lr", "precision"};

// What messages call the text that is checked, for their lines to be left out: nobody sees it.
constexpr std::string_view kChecked = "answers";

struct SaidKey {
  std::string key;
  YamlNode value;
};

YamlNode read_answer(std::string_view text) {
  YamlDocument document = read_yaml(text);
  if (!document.problems.empty()) throw Error(document.problems[0].message);
  return std::move(document.root);
}

// KEY=VALUE by full keys: those of a section each alone.
std::vector<SaidKey> said_keys(const Words& given, const Schema& schema) {
  std::vector<SaidKey> said;
  for (const std::string& each : given) {
    const std::size_t equals = each.find('=');
    if (equals == std::string::npos) throw Error(concat("'", each, "': expects KEY=VALUE, as in optimizer.lr=3e-4"));
    YamlNode value = read_answer(std::string_view(each).substr(equals + 1));
    const std::string key = schema.own_key(each.substr(0, equals), value);
    std::erase_if(said, [&](const SaidKey& other) { return other.key == key || is_inside(other.key, key); });
    if (value.kind == YamlNode::Kind::mapping && schema.is_section(key) && !schema.takes_mappings(key))
      for (YamlEntry& entry : value.entries) said.push_back({concat(key, '.', entry.key), std::move(entry.value)});
    else said.push_back({key, std::move(value)});
  }
  return said;
}

// Sections in the order in which they are first said.
std::string yaml_of_said(const std::vector<SaidKey>& all) {
  std::string yaml;
  Keys written;
  for (const SaidKey& said : all) {
    const std::string_view section = section_of(said.key);
    if (section.empty()) {
      yaml += concat(said.key, ": ", flow_text(said.value), '\n');
      continue;
    }
    if (std::ranges::find(written, section) != written.end()) continue;
    written.push_back(section);
    yaml += concat(section, ":\n");
    for (const SaidKey& other : all)
      if (section_of(other.key) == section)
        yaml += concat("  ", other.key.substr(section.size() + 1), ": ", flow_text(other.value), '\n');
  }
  return yaml;
}

// "answers:3: model.heads: ..." from "model.heads" on.
std::string without_place(std::string line) {
  if (!line.starts_with(kChecked)) return line;
  const std::size_t end = line.find(": ");
  return end == std::string::npos ? line : line.substr(end + 2);
}

class Interview {
 public:
  Interview(const std::shared_ptr<const ConfigKeys>& keys, const Asking& asking, std::istream& in, std::ostream& out)
      : keys_(keys), asking_(asking), in_(in), out_(out) {
    config_.keys = keys;
    config_.task = keys->tasks().standard().name;
    given_ = said_keys(asking.given, config_.schema());
  }

  Answers run() {
    if (keys_->tasks().entries().size() > 1) ask_section({kTask});
    given_ = said_keys(asking_.given, config_.schema());
    set_defaults_of_task();
    for (const Keys& section : in_sections(keys_of_task())) ask_section(section);
    for (const Keys& section : in_sections({std::begin(kAskedOfAll), std::end(kAskedOfAll)})) ask_section(section);
    for (const Keys& section : in_sections(keys_without_default())) ask_section(section);
    std::vector<SaidKey> all = answers_;
    all.insert(all.end(), given_.begin(), given_.end());
    Answers answers = {yaml_of_said(all), 1};
    if (!asking_.defaults) answers.ranks = ask_ranks();
    return answers;
  }

 private:
  // Those without a default with the choices that say whether they apply, then those that the task wants asked.
  Keys keys_of_task() const {
    const TaskEntry& task = *keys_->tasks().find(config_.task);
    Keys keys;
    const auto add = [&](std::string_view key) {
      if (!key.empty() && std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
    };
    for (const SchemaRow& row : config_.schema().rows())
      if (is_key_of(task, row.key) && row.standard.empty()) {
        add(row.when.key);
        add(row.key);
      }
    for (const SchemaRow& row : config_.schema().rows())
      if (is_key_of(task, row.key) && row.asked) add(row.key);
    return keys;
  }

  // On which it depends what applies.
  void set_defaults_of_task() {
    const TaskEntry& task = *keys_->tasks().find(config_.task);
    for (const SchemaRow& row : config_.schema().rows())
      if (is_key_of(task, row.key) && row_of(row.key) == &row && !standard_of(row).empty())
        set_value(row, config_, read_answer(standard_of(row)));
  }

  Keys keys_without_default() const {
    Keys keys;
    for (const SchemaRow& row : config_.schema().rows())
      if (row.standard.empty() && !is_seen(row.key) && std::ranges::find(keys, row.key) == keys.end())
        keys.push_back(row.key);
    return keys;
  }

  // Keys of one section stand together; each key of none is one of its own.
  static std::vector<Keys> in_sections(const Keys& keys) {
    std::vector<Keys> sections;
    for (const std::string_view key : keys) {
      const std::string_view section = section_of(key);
      const auto same = std::ranges::find_if(
          sections, [&](const Keys& each) { return !section.empty() && section_of(each.front()) == section; });
      if (same == sections.end()) sections.push_back({key});
      else same->push_back(key);
    }
    return sections;
  }

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

  void ask_section(const Keys& keys) {
    sections_.push_back(keys);
    for (Keys asked = keys;; asked = section_named_in(complaint())) {
      std::erase_if(answers_, [&](const SaidKey& said) { return std::ranges::find(asked, said.key) != asked.end(); });
      bool is_asked = false;
      for (const std::string_view key : asked)
        if (const SchemaRow* row = row_of(key)) is_asked |= ask(*row);
      const std::string wrong = complaint();
      if (wrong.empty()) break;
      if (!is_asked) throw Error(printable_lines(wrong));
      complain(wrong);
    }
    std::ranges::stable_sort(answers_, {}, [&](const SaidKey& said) { return place_of(said.key); });
  }

  // Of the sections so far, in their order.
  std::size_t place_of(std::string_view key) const {
    std::size_t place = 0;
    for (const Keys& section : sections_)
      for (const std::string_view each : section) {
        if (each == key) return place;
        ++place;
      }
    return place;
  }
  bool is_seen(std::string_view key) const {
    return std::ranges::any_of(sections_,
                               [&](const Keys& section) { return std::ranges::find(section, key) != section.end(); });
  }

  // The one whose key a message begins with; else the last one.
  const Keys& section_named_in(std::string_view message) const {
    for (const Keys& section : sections_)
      for (const std::string_view key : section)
        if (message.starts_with(key) && message.substr(key.size()).find_first_of(":[") == 0) return section;
    return sections_.back();
  }

  // Whether there was something to ask.
  bool ask(const SchemaRow& row) {
    const std::string standard = standard_of(row);
    const bool is_no_choice = !row.field->choices().empty() && split_choices(row.field->choices()).size() == 1;
    for (const SaidKey& said : given_)
      if (said.key == row.key) {
        try {
          set_value(row, config_, said.value);
        } catch (const Error& error) { throw Error(concat(row.key, ": "), error); }
        return false;
      }
    if (!standard.empty() && (asking_.defaults || is_no_choice)) {
      set_value(row, config_, read_answer(standard));
      return false;
    }
    for (;;) {
      out_ << row.help << '\n' << row.key << " (" << describe_values(row) << ')';
      if (!standard.empty()) out_ << " [" << standard << ']';
      const std::string answer = read_line(row.key);
      try {
        if (answer.empty() && standard.empty()) throw Error("has no default");
        YamlNode value = read_answer(answer.empty() ? standard : answer);
        set_value(row, config_, value);
        if (!answer.empty()) answers_.push_back({std::string(row.key), std::move(value)});
        return true;
      } catch (const Error& error) { complain(concat(row.key, ": ", error.what())); }
    }
  }

  // What is wrong with the sections so far; empty: nothing. What is missing is not asked yet.
  std::string complaint() const {
    std::vector<SaidKey> so_far = answers_;
    for (const SaidKey& given : given_)
      if (is_seen(given.key) || std::ranges::any_of(sections_, [&](const Keys& section) {
            return !section_of(given.key).empty() && section_of(section.front()) == section_of(given.key);
          }))
        so_far.push_back(given);
    try {
      (void)parse_config(keys_, yaml_of_said(so_far), kChecked);
    } catch (const Error& error) {
      std::istringstream lines(error.what());
      std::string wrong;
      for (std::string line; std::getline(lines, line);)
        if (!line.ends_with(kMissingValue)) wrong += concat(wrong.empty() ? "" : "\n", without_place(line));
      return wrong;
    }
    return "";
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
    if (!asking_.is_a_person) out_ << '\n';
    const std::size_t first = line.find_first_not_of(" \t\r"), last = line.find_last_not_of(" \t\r");
    return first == std::string::npos ? "" : line.substr(first, last - first + 1);
  }

  void complain(const std::string& what) {
    const std::string text = printable_lines(what);
    if (!asking_.is_a_person) throw Error(text);
    out_ << text << '\n';
  }

  std::shared_ptr<const ConfigKeys> keys_;
  const Asking& asking_;
  std::istream& in_;
  std::ostream& out_;
  Config config_;
  std::vector<SaidKey> given_, answers_;
  std::vector<Keys> sections_;  // so far
};

}  // namespace

Answers ask_questions(const std::shared_ptr<const ConfigKeys>& keys, const Asking& asking, std::istream& in,
                      std::ostream& out) {
  return Interview(keys, asking, in, out).run();
}

}  // namespace keel::cli
