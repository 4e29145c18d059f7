#include "keel/config/values.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <type_traits>

#include "keel/runtime/error.h"
#include "keel/runtime/file.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

const std::string& plain_scalar(const SchemaRow& row, const YamlNode& node) {
  if (node.kind != YamlNode::Kind::scalar || node.quoted) refuse_value(row, node);
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
  if (!parse_number(plain_scalar(row, node), value)) refuse_value(row, node);
  // Room for sums of counts, and what every program can read.
  if constexpr (std::is_same_v<T, std::int64_t>) {
    constexpr std::int64_t kLargest = std::int64_t{1} << 53;
    if (value > kLargest) refuse_value(row, node, concat("; at most ", kLargest, " is possible"));
  }
  if (!std::isfinite(static_cast<double>(value)) || !row.range.contains(static_cast<double>(value)))
    refuse_value(row, node);
  return value;
}

// " > 0", " <= 0", " from 0 to 0.5", " from 0 to below 1".
std::string describe_range(const Range& range) {
  if (range.low == -kNoLimit && range.high == kNoLimit) return "";
  if (range.high == kNoLimit) return fmt::format(" {} {}", range.low_open ? ">" : ">=", range.low);
  if (range.low == -kNoLimit) return fmt::format(" {} {}", range.high_open ? "<" : "<=", range.high);
  return fmt::format(" {} {} {} {}", range.low_open ? "above" : "from", range.low, range.high_open ? "to below" : "to",
                     range.high);
}

}  // namespace

std::string shown(const YamlNode& node) {
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

void refuse_value(const SchemaRow& row, const YamlNode& node, std::string_view advice) {
  throw Error(concat("expects ", describe_values(row), ", got ", shown(node), advice));
}

void read_value(const SchemaRow& row, const YamlNode& node, bool& value) {
  const std::string& text = plain_scalar(row, node);
  if (text != "true" && text != "false") refuse_value(row, node);
  value = text == "true";
}
void read_value(const SchemaRow& row, const YamlNode& node, int& value) { value = number<int>(row, node); }
void read_value(const SchemaRow& row, const YamlNode& node, std::int64_t& value) {
  value = number<std::int64_t>(row, node);
}
void read_value(const SchemaRow& row, const YamlNode& node, std::uint64_t& value) {
  value = number<std::uint64_t>(row, node);
}
void read_value(const SchemaRow& row, const YamlNode& node, double& value) { value = number<double>(row, node); }
void read_value(const SchemaRow& row, const YamlNode& node, std::array<double, 2>& value) {
  if (node.kind != YamlNode::Kind::list || node.items.size() != 2) refuse_value(row, node);
  for (std::size_t i = 0; i < 2; ++i) value[i] = number<double>(row, node.items[i]);
}
void read_value(const SchemaRow& row, const YamlNode& node, std::string& value) {
  if (node.kind != YamlNode::Kind::scalar) refuse_value(row, node);
  if (node.text.empty()) throw Error("is empty");
  if (printable(node.text, node.text.size()) != node.text) throw Error("has characters that cannot be shown");
  value = with_home_folder(node.text);
}

int read_choice(const SchemaRow& row, const YamlNode& node, std::string_view choices, std::string_view other_words) {
  if (node.kind != YamlNode::Kind::scalar) refuse_value(row, node);
  const std::vector<std::string_view> own = split_choices(choices);
  std::vector<std::string_view> known = own;
  std::string_view word = node.text;
  for (const std::string_view pair : split_choices(other_words)) {
    known.push_back(pair.substr(0, pair.find('=')));
    if (known.back() == node.text) word = pair.substr(pair.find('=') + 1);
  }
  for (std::size_t i = 0; i < own.size(); ++i)
    if (own[i] == word) return static_cast<int>(i);
  const std::string likely = nearest(node.text.substr(0, 64), known);
  constexpr std::size_t kMostListed = 12;
  if (!likely.empty() && own.size() > kMostListed)
    throw Error(concat("there is no ", shown(node), "; did you mean '", likely, "'?"));
  refuse_value(row, node, likely.empty() ? "" : concat("; did you mean '", likely, "'?"));
}

std::string yaml_of(bool value) { return value ? "true" : "false"; }
std::string yaml_of(int value) { return std::to_string(value); }
std::string yaml_of(std::int64_t value) { return std::to_string(value); }
std::string yaml_of(std::uint64_t value) { return std::to_string(value); }
std::string yaml_of(double value) { return fmt::format("{}", value); }
std::string yaml_of(const std::array<double, 2>& value) { return fmt::format("[{}, {}]", value[0], value[1]); }
std::string yaml_of(const std::string& path) { return text_to_yaml(path); }

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

std::string flow_text(const YamlNode& node) {
  std::string list;
  switch (node.kind) {
    case YamlNode::Kind::null: return "null";
    case YamlNode::Kind::scalar: return node.quoted ? text_to_yaml(node.text) : node.text;
    case YamlNode::Kind::list:
      for (const YamlNode& item : node.items) list += concat(list.empty() ? "" : ", ", flow_text(item));
      return concat('[', list, ']');
    case YamlNode::Kind::mapping: break;
  }
  for (const YamlEntry& entry : node.entries)
    list += concat(list.empty() ? "" : ", ", entry.key, ": ", flow_text(entry.value));
  return concat('{', list, '}');
}

std::string words_for(bool, const Range&) { return "true or false"; }
std::string words_for(int, const Range& range) { return "a whole number" + describe_range(range); }
std::string words_for(std::int64_t, const Range& range) { return "a whole number" + describe_range(range); }
std::string words_for(std::uint64_t, const Range&) { return "a whole number from 0 to 18446744073709551615"; }
std::string words_for(double, const Range& range) { return "a number" + describe_range(range); }
std::string words_for(const std::array<double, 2>&, const Range& range) {
  return "a list of two numbers" + describe_range(range);
}
std::string words_for(const std::string&, const Range&) { return "a path"; }

}  // namespace keel
