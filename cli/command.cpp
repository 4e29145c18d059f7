#include "command.h"

#include <charconv>
#include <utility>

#include "keel/runtime/error.h"

namespace keel::cli {
namespace {

template <class Number>
bool read_number(std::string_view word, Number lowest, Number highest, Number& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc{} && end == word.data() + word.size() && number >= lowest && number <= highest;
}

Words split(std::string_view text) {
  Words parts;
  for (;;) {
    const std::size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

Words split_all(const Words& words) {
  Words parts;
  for (const std::string& word : words)
    for (std::string& part : split(word)) parts.push_back(std::move(part));
  return parts;
}

std::string join(const Words& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ",") + part;
  return text;
}

template <class Number>
void describe_number(Value& value, const char* type, const char* name, Number lowest, Number highest) {
  value.type = type;
  value.expects = name;
  if (lowest == std::numeric_limits<Number>::lowest() && highest == std::numeric_limits<Number>::max()) return;
  value.type = concat(type, " in [", lowest, " - ", highest, ']');
  value.expects = concat(name, " from ", lowest, " to ", highest);
}

template <class Number>
void make_number(Value& value, Number* variable, const char* type, const char* name, Number lowest, Number highest) {
  describe_number(value, type, name, lowest, highest);
  if (*variable >= lowest && *variable <= highest) value.initial = concat(*variable);
  value.read = [=](const Words& words) { return read_number(words.back(), lowest, highest, *variable); };
}

constexpr const char* kWhole = "a whole number";

}  // namespace

Value::Value(bool* variable) : count(0), repeats(true), expects("true, false or nothing") {
  read = [variable](const Words& words) {
    *variable = words.back() == "true";
    return *variable || words.back() == "false";
  };
}

Value::Value(std::string* variable) : type("TEXT"), expects("a value"), initial(*variable) {
  read = [variable](const Words& words) {
    *variable = words.back();
    return true;
  };
}

Value::Value(int* variable, int lowest, int highest) { make_number(*this, variable, "INT", kWhole, lowest, highest); }
Value::Value(std::int64_t* variable, std::int64_t lowest, std::int64_t highest) {
  make_number(*this, variable, "INT", kWhole, lowest, highest);
}
Value::Value(std::uint64_t* variable) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  make_number(*this, variable, "UINT", "a whole number from 0 on", std::uint64_t{0}, kMost);
}
Value::Value(double* variable, double lowest, double highest) {
  make_number(*this, variable, "FLOAT", "a number", lowest, highest);
}

Value::Value(Words* variable)
    : repeats(true), is_list(true), type("TEXT"), expects("values with commas between them"), initial(join(*variable)) {
  read = [variable](const Words& words) {
    *variable = split_all(words);
    return true;
  };
}

Value::Value(std::vector<int>* variable, int lowest, int highest) : repeats(true), is_list(true) {
  describe_number(*this, "INT", "whole numbers with commas between them, each", lowest, highest);
  read = [=](const Words& words) {
    variable->clear();
    for (const std::string& part : split_all(words))
      if (!read_number(part, lowest, highest, variable->emplace_back())) return false;
    return true;
  };
}

Value Value::words(Words* variable, int count) {
  Value value;
  value.count = count;
  value.type = "TEXT";
  value.expects = concat(count, " values");
  value.read = [variable](const Words& words) {
    *variable = words;
    return true;
  };
  return value;
}

Value Value::every_word(Words* variable) {
  Value value = words(variable, 1);
  value.repeats = true;
  return value;
}

Value Value::rest(Words* variable, bool (*shares)(std::string_view first)) {
  Value value = every_word(variable);
  value.shares = shares;
  return value;
}

Value Value::shown(std::function<std::string()> text) {
  Value value;
  value.count = 0;
  value.text = std::move(text);
  return value;
}

Words names_of(const Option& option) { return split(option.names); }

}  // namespace keel::cli
