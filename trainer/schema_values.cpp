// Values of configuration keys: from YAML into Config, checked against their row, and back.

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>
#include <type_traits>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/schema.h"

namespace keel {
namespace {

// What a node looks like in a message.
std::string describe(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null: return "nothing";
    case YamlNode::Kind::list: return "a list";
    case YamlNode::Kind::mapping: return "a mapping";
    case YamlNode::Kind::scalar: break;
  }
  constexpr std::size_t kLongest = 60;
  const bool cut = node.text.size() > kLongest;
  return fmt::format("'{}{}'{}", node.text.substr(0, kLongest), cut ? "..." : "",
                     node.quoted ? " in quotes, which make it a text" : "");
}

[[noreturn]] void refuse(const SchemaRow& row, const YamlNode& node, std::string_view advice = {}) {
  throw Error(concat("expects ", describe_values(row), ", got ", describe(node), advice));
}

const std::string& plain_scalar(const SchemaRow& row, const YamlNode& node) {
  if (node.kind != YamlNode::Kind::scalar || node.quoted) refuse(row, node);
  return node.text;
}

template <class T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

template <class T>
T number(const SchemaRow& row, const YamlNode& node) {
  T value{};
  if (!parse_number(plain_scalar(row, node), value)) refuse(row, node);
  // Room for sums of counts, and what every program can read.
  if constexpr (std::is_same_v<T, std::int64_t>) {
    constexpr std::int64_t kLargest = std::int64_t{1} << 53;
    if (value > kLargest) refuse(row, node, concat("; at most ", kLargest, " is possible"));
  }
  if (!std::isfinite(static_cast<double>(value)) || !row.range.contains(static_cast<double>(value))) refuse(row, node);
  return value;
}

// One setter for each alternative of Field.
struct Setter {
  const SchemaRow& row;
  Config& config;
  const YamlNode& node;

  template <class T>
  requires std::is_arithmetic_v<T>
  void operator()(Access<T> member) const { member(config) = number<T>(row, node); }

  void operator()(Access<bool> member) const {
    const std::string& text = plain_scalar(row, node);
    if (text != "true" && text != "false") refuse(row, node);
    member(config) = text == "true";
  }
  void operator()(Access<std::array<double, 2>> member) const {
    if (node.kind != YamlNode::Kind::list || node.items.size() != 2) refuse(row, node);
    for (std::size_t i = 0; i < 2; ++i) member(config)[i] = number<double>(row, node.items[i]);
  }
  void operator()(Access<std::string> member) const {
    if (node.kind != YamlNode::Kind::scalar) refuse(row, node);
    if (node.text.empty()) throw Error("is empty");
    if (printable(node.text, node.text.size()) != node.text) throw Error("has characters that cannot be shown");
    member(config) = with_home_folder(node.text);
  }
  void operator()(Access<std::vector<GroupPattern>> member) const {
    if (node.kind != YamlNode::Kind::list) refuse(row, node);
    set_groups(member(config), node);
  }
  void operator()(const ChoiceField& field) const {
    if (node.kind != YamlNode::Kind::scalar) refuse(row, node);
    const std::vector<std::string_view> choices = split_choices(field.choices);
    std::vector<std::string_view> known = choices;
    std::string_view word = node.text;
    for (const std::string_view pair : split_choices(field.other_words)) {
      known.push_back(pair.substr(0, pair.find('=')));
      if (known.back() == node.text) word = pair.substr(pair.find('=') + 1);
    }
    for (std::size_t i = 0; i < choices.size(); ++i)
      if (choices[i] == word) return field.set(config, static_cast<int>(i));
    const std::string likely = nearest(node.text.substr(0, 64), known);
    constexpr std::size_t kMostListed = 12;
    if (!likely.empty() && choices.size() > kMostListed)
      throw Error(concat("there is no ", describe(node), "; did you mean '", likely, "'?"));
    refuse(row, node, likely.empty() ? "" : concat("; did you mean '", likely, "'?"));
  }
  void operator()(const ScheduleField& field) const { set_schedule_value(*field.use, config.scheduler.settings, node); }
  void operator()(const ParsedField& field) const {
    if (node.kind != YamlNode::Kind::scalar) refuse(row, node);
    field.set(config, node.text);
  }
};

struct Writer {
  Config& config;
  std::string operator()(Access<bool> member) const { return member(config) ? "true" : "false"; }
  std::string operator()(Access<std::array<double, 2>> member) const {
    return fmt::format("[{}, {}]", member(config)[0], member(config)[1]);
  }
  std::string operator()(Access<std::string> member) const { return text_to_yaml(member(config)); }
  std::string operator()(Access<std::vector<GroupPattern>> member) const { return groups_text(member(config)); }
  template <class T>
  std::string operator()(Access<T> member) const {
    return fmt::format("{}", member(config));
  }
  std::string operator()(const ChoiceField& field) const {
    return std::string(split_choices(field.choices).at(static_cast<std::size_t>(field.get(config))));
  }
  std::string operator()(const ParsedField& field) const { return field.get(config); }
  std::string operator()(const ScheduleField& field) const {
    return schedule_field_text(*field.use, config.scheduler.settings);
  }
};

}  // namespace

std::string text_to_yaml(std::string_view text) {
  constexpr std::string_view kWord = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/.-+=";
  const bool word =
      !text.empty() && text.find_first_not_of(kWord) == std::string_view::npos && text.find_first_of("-+=") != 0;
  const bool reads_as_null = text == "null" || text == "Null" || text == "NULL";
  if (word && !reads_as_null) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') quoted += {'\\', c};
    else if (code < 0x20 || code == 0x7f) quoted += fmt::format("\\x{:02x}", code);
    else quoted += c;
  }
  return quoted + '"';
}

void set_value(const SchemaRow& row, Config& config, const YamlNode& node) {
  std::visit(Setter{row, config, node}, row.field);
}

std::string value_text(const SchemaRow& row, const Config& config) {
  return std::visit(Writer{const_cast<Config&>(config)}, row.field);  // Writer only reads
}

std::string to_yaml(const Config& config) {
  std::string text;
  std::string section;
  std::map<std::string_view, std::string> values;
  for (const SchemaRow& row : schema()) {
    const auto chosen = values.find(row.when.key);
    if (!row.when.accepts(chosen == values.end() ? "" : chosen->second)) continue;
    const std::string& value = values[row.key] = value_text(row, config);
    const std::size_t dot = row.key.find('.');
    const std::string_view parent = dot == std::string_view::npos ? "" : row.key.substr(0, dot);
    if (parent.empty()) {
      text += concat(row.key, ": ", value, "\n");
    } else {
      if (parent != section) text += concat(parent, ":\n");
      text += concat("  ", row.key.substr(dot + 1), ": ", value, "\n");
    }
    section = parent;
  }
  return text;
}

}  // namespace keel
