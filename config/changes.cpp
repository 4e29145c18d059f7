#include "keel/config/changes.h"

#include <algorithm>
#include <map>
#include <utility>

namespace keel {
namespace {

// The values that apply, by key.
std::map<std::string_view, std::string> texts_of(const Schema& schema, const Settings& settings) {
  std::map<std::string_view, std::string> texts;
  for (auto& [row, value] : applying_values(schema, settings)) texts.emplace(row->key, std::move(value));
  return texts;
}

}  // namespace

std::vector<ConfigChange> changes_between(const Schema& schema, const Settings& before, const Settings& now,
                                          OnResume kind) {
  const auto then = texts_of(schema, before), applying = texts_of(schema, now);
  std::vector<ConfigChange> changes;
  const auto is_listed = [&](std::string_view key) {
    return std::any_of(changes.begin(), changes.end(), [&](const ConfigChange& change) { return change.key == key; });
  };
  for (const SchemaRow& row : schema.rows()) {
    if (row.on_resume != kind || is_listed(row.key)) continue;
    const auto old_text = then.find(row.key), text = applying.find(row.key);
    if ((old_text == then.end() || text == applying.end()) && is_listed(row.when.key)) continue;
    // A published size sets members of keys that do not apply to it.
    std::string old_value = old_text == then.end() ? value_text(row, before) : old_text->second,
                value = text == applying.end() ? value_text(row, now) : text->second;
    if (old_value != value) changes.push_back({row.key, std::move(old_value), std::move(value)});
  }
  return changes;
}

}  // namespace keel
