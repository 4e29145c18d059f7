#include "keel/data/csv_columns.h"

#include <algorithm>
#include <charconv>

#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"

namespace keel {
namespace {

constexpr std::size_t kShownNames = 20;

// "p0..p63" as its 64 names; false for a text that is no range.
bool expand_range(std::string_view text, std::vector<std::string>& names) {
  struct Numbered {
    std::string_view prefix, digits;
    std::int64_t number = -1;
  };
  const auto numbered = [](std::string_view name) {
    const std::size_t digits = name.find_last_not_of("0123456789") + 1;
    Numbered parts = {name.substr(0, digits), name.substr(digits)};
    std::from_chars(name.data() + digits, name.data() + name.size(), parts.number);
    return parts;
  };
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) return false;
  const Numbered first = numbered(text.substr(0, dots)), last = numbered(text.substr(dots + 2));
  if (first.prefix != last.prefix || first.number < 0 || last.number < first.number) return false;
  KEEL_CHECK(last.number - first.number < 1'000'000, "the columns '", text, "' are more than a million");
  // Numbers with leading zeros are as long as the first one.
  for (std::int64_t number = first.number; number <= last.number; ++number) {
    std::string digits = std::to_string(number);
    if (digits.size() < first.digits.size()) digits.insert(0, first.digits.size() - digits.size(), '0');
    names.push_back(concat(first.prefix, digits));
  }
  return true;
}

std::vector<std::string> names_in(std::string_view columns) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= columns.size();) {
    const std::size_t end = std::min(columns.find(',', begin), columns.size());
    const std::string_view name = columns.substr(begin, end - begin);
    if (!expand_range(name, names)) names.emplace_back(name);
    begin = end + 1;
  }
  return names;
}

std::string list_of(const std::vector<std::string>& names) {
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), kShownNames); ++i)
    list += concat(i == 0 ? "" : ", ", printable(names[i], 64));
  return names.size() > kShownNames ? concat(list, " and ", names.size() - kShownNames, " more") : list;
}

std::size_t column_of(const std::string& wanted, const std::vector<std::string>& names, const std::string& path) {
  const auto found = std::ranges::find(names, wanted);
  if (found == names.end()) {
    const std::string likely = nearest(std::string_view(wanted).substr(0, 64), names);
    throw Error(concat("'", path, "', line 1: there is no column '", printable(wanted, 64), "'",
                       likely.empty() ? "." : concat("; did you mean '", printable(likely, 64), "'?"), " There are ",
                       names.size(), ": ", list_of(names)));
  }
  KEEL_CHECK(std::find(found + 1, names.end(), wanted) == names.end(), "'", path, "', line 1: two columns are named '",
             printable(wanted, 64), "'");
  return static_cast<std::size_t>(found - names.begin());
}

}  // namespace

std::vector<std::string> expanded_columns(const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const std::string& name : names)
    if (!expand_range(name, all)) all.push_back(name);
  return all;
}

std::vector<CsvField> csv_fields(const std::vector<FieldColumns>& wanted, const std::vector<std::string>& names,
                                 const std::string& path) {
  std::vector<CsvField> fields;
  if (wanted.empty())
    for (const std::string& name : names)
      fields.push_back({name, CellKind::number, false, {column_of(name, names, path)}});
  for (const auto& [field, columns] : wanted) {
    CsvField made = {field};
    std::string_view list = columns;
    made.is_marked = list.starts_with('#') || list.starts_with('$');
    if (made.is_marked) {
      made.kind = list.front() == '#' ? CellKind::whole : CellKind::text;
      list.remove_prefix(1);
    }
    for (const std::string& name : names_in(list)) made.columns.push_back(column_of(name, names, path));
    KEEL_CHECK(made.kind != CellKind::text || made.columns.size() == 1, "field '", printable(field, 64),
               "' is the text of one column, not of ", made.columns.size());
    KEEL_CHECK(std::ranges::find(fields, field, &CsvField::name) == fields.end(), "two fields of '", path,
               "' are named '", printable(field, 64), "'");
    fields.push_back(std::move(made));
  }
  return fields;
}

}  // namespace keel
