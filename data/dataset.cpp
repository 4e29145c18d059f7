#include "keel/data/dataset.h"

#include <algorithm>

#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

struct KindOf {
  std::string operator()(double) const { return "a number"; }
  std::string operator()(std::int64_t) const { return "a whole number"; }
  std::string operator()(const std::string&) const { return "a text"; }
  std::string operator()(const Numbers& numbers) const { return concat("numbers ", numbers.shape); }
  std::string operator()(const Integers& integers) const { return concat("whole numbers ", integers.shape); }
  std::string operator()(const Nested& nested) const { return nested.json.starts_with('[') ? "a list" : "an object"; }
};

}  // namespace

std::string kind_of(const Value& value) { return std::visit(KindOf{}, value); }

Example& Example::set(std::string name, Value value) {
  KEEL_CHECK(!has(name), "the example has a field '", printable(name, 64), "' already");
  fields_.emplace_back(std::move(name), std::move(value));
  return *this;
}

const Value* Example::find(std::string_view name) const {
  for (const Field& field : fields_)
    if (field.first == name) return &field.second;
  return nullptr;
}

void Example::refuse(std::string_view name, std::string_view wanted) const {
  std::string message;
  std::vector<std::string_view> names;
  for (const Field& field : fields_) names.push_back(field.first);
  if (const Value* value = find(name); value != nullptr) {
    message = concat("field '", printable(name, 64), "' of the example is ", kind_of(*value));
    if (const auto* nested = std::get_if<Nested>(value)) message += concat(", ", printable(nested->json, 40));
    message += concat(", not ", wanted);
  } else {
    message = concat("the example has no field '", printable(name, 64), "'");
    const std::string likely = nearest(name.substr(0, 64), names);
    if (!likely.empty()) message += concat("; did you mean '", printable(likely, 64), "'?");
  }
  for (std::size_t i = 0; i < fields_.size(); ++i)
    message += concat(i == 0 ? "; it has " : ", ", printable(names[i], 64), " (", kind_of(fields_[i].second), ")");
  throw Error(message);
}

const Value& Example::operator[](std::string_view name) const& {
  const Value* value = find(name);
  if (value == nullptr) refuse(name, "");
  return *value;
}

double Example::number(std::string_view name) const {
  const Value& value = (*this)[name];
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  refuse(name, "a number");
}

std::int64_t Example::integer(std::string_view name) const {
  if (const auto* whole = std::get_if<std::int64_t>(&(*this)[name])) return *whole;
  refuse(name, "a whole number");
}

const std::string& Example::text(std::string_view name) const& {
  if (const auto* text = std::get_if<std::string>(&(*this)[name])) return *text;
  refuse(name, "a text");
}

const std::string* text_or_json(const Value& value) {
  const auto* nested = std::get_if<Nested>(&value);
  return nested != nullptr ? &nested->json : std::get_if<std::string>(&value);
}

std::vector<Example> Dataset::examples(std::span<const std::int64_t> indices) const {
  std::vector<Example> all;
  all.reserve(indices.size());
  for (const std::int64_t i : indices) all.push_back(example(i));
  return all;
}

std::string Dataset::place(std::int64_t i) const { return concat("example ", i, " (from 0 on)"); }

void Dataset::check_index(std::int64_t i) const {
  KEEL_CHECK(0 <= i && i < size(), "example ", i, " is outside the data set's ", size());
}

}  // namespace keel
