#include "keel/config/settings.h"

#include <algorithm>
#include <set>

#include "keel/config/resolver.h"
#include "keel/config/schema.h"

namespace keel {
namespace {

constexpr std::string_view kTypeWords[] = {"a flag",   "an integer", "a number", "a text",
                                           "integers", "numbers",    "texts",    "parts"};

void require_no_outer_keys(std::span<const KeyRow> rows) {
  const auto is_here = [&](std::string_view key) {
    return std::any_of(rows.begin(), rows.end(), [&](const KeyRow& row) { return row.key == key; });
  };
  for (const KeyRow& row : rows)
    for (const std::string_view key :
         {row.when_key, row.standard.starts_with('=') ? row.standard.substr(1) : std::string_view{}})
      if (!key.empty() && !is_here(key))
        throw Error(concat("settings: ", row.key, " depends on ", key, ", which is no key of these rows"),
                    ErrorKind::internal);
}

}  // namespace

Settings::Settings(std::span<const KeyRow> rows, std::span<const std::pair<std::string, std::string>> given) {
  require_no_outer_keys(rows);
  const Schema schema(schema_rows(rows));
  Resolver resolver(schema, *this, "settings", "settings");
  for (const auto& [key, text] : given) resolver.add_override(concat(key, '=', text));
  resolver.resolve();
}

template <class T>
const T& Settings::get(std::string_view key, std::string_view asked) const {
  const auto found =
      std::find_if(values_.begin(), values_.end(), [&](const auto& value) { return value.first == key; });
  if (found == values_.end()) {
    std::string known;
    for (const auto& value : values_) known += concat(known.empty() ? "" : ", ", value.first);
    throw Error(concat("settings: there is no value of '", key, "' here; there are ", known.empty() ? "none" : known),
                ErrorKind::internal);
  }
  if (const T* value = std::get_if<T>(&found->second)) return *value;
  throw Error(concat("settings: ", key, " is ", kTypeWords[found->second.index()], ", and is asked for as ", asked),
              ErrorKind::internal);
}

bool Settings::flag(std::string_view key) const { return get<bool>(key, "a flag"); }
std::int64_t Settings::integer(std::string_view key) const { return get<std::int64_t>(key, "an integer"); }
double Settings::number(std::string_view key) const { return get<double>(key, "a number"); }
const std::string& Settings::text(std::string_view key) const { return get<std::string>(key, "a text"); }
const std::vector<std::int64_t>& Settings::integers(std::string_view key) const {
  return get<std::vector<std::int64_t>>(key, "integers");
}
const std::vector<double>& Settings::numbers(std::string_view key) const {
  return get<std::vector<double>>(key, "numbers");
}
const std::vector<std::string>& Settings::texts(std::string_view key) const {
  return get<std::vector<std::string>>(key, "texts");
}

const std::vector<Settings>& Settings::parts(std::string_view key) const {
  return get<std::vector<Settings>>(key, "parts");
}

std::shared_ptr<const Schema> joined(const Schema& base, std::span<const KeyRow> rows) {
  const std::vector<SchemaRow> made = schema_rows(rows);
  std::vector<SchemaRow> all;
  std::set<std::string_view> begun;
  const auto begin = [&](std::string_view section) {
    if (!begun.insert(section).second) return;
    for (const SchemaRow& row : made)
      if (section_of(row.key) == section) all.push_back(row);
  };
  const auto begin_new_ones = [&] {
    begin("task");
    for (const SchemaRow& row : made)
      if (!base.is_section(section_of(row.key))) begin(section_of(row.key));
  };
  for (const SchemaRow& row : base.rows()) {
    if (const std::string_view section = section_of(row.key); !section.empty()) {
      begin_new_ones();
      begin(section);
    }
    all.push_back(row);
  }
  begin_new_ones();
  const std::span<const RetiredKey> retired = base.retired();
  return std::make_shared<const Schema>(std::move(all), std::vector<RetiredKey>(retired.begin(), retired.end()));
}

}  // namespace keel
