#include "keel/config/schema_row.h"

#include <algorithm>

#include "keel/runtime/error.h"

namespace keel {

std::string_view words_of(KeyRole role) {
  constexpr std::string_view kWords[] = {"nothing",
                                         "heads of the model",
                                         "the length of a sequence",
                                         "the file of the data",
                                         "the fraction of validation",
                                         "computing activations again"};
  return kWords[static_cast<std::size_t>(role)];
}

bool Range::contains(double value) const {
  return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
}

std::vector<std::string_view> split_choices(std::string_view choices) {
  std::vector<std::string_view> parts;
  while (!choices.empty()) {
    const std::size_t end = std::min(choices.find('|'), choices.size());
    parts.push_back(choices.substr(0, end));
    choices.remove_prefix(std::min(end + 1, choices.size()));
  }
  return parts;
}

std::string listed(std::string_view choices) {
  const std::vector<std::string_view> parts = split_choices(choices);
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? " or " : ", ";
    text += parts[i];
  }
  return text;
}

bool Condition::accepts(std::string_view value) const {
  for (const std::string_view each : split_choices(values))
    if (each == value) return !except;
  return except || key.empty();
}

std::string describe_default(const SchemaRow& row) {
  if (row.standard.empty()) return "required";
  if (row.standard[0] == '=') return concat("value of ", row.standard.substr(1));
  return std::string(row.standard);
}

std::string describe_condition(const SchemaRow& row) {
  if (row.when.key.empty()) return "";
  return concat(row.when.key, " is ", row.when.except ? "not " : "", listed(row.when.values));
}

std::string describe_conditions(std::span<const SchemaRow> rows) {
  std::string values;
  for (const SchemaRow& row : rows)
    if (!row.fixed) values += concat(values.empty() ? "" : "|", row.when.values);
  SchemaRow any = rows[0];
  any.when.values = values;
  return describe_condition(any);
}

}  // namespace keel
