#include "keel/config/pages.h"

#include <fmt/format.h>

#include <algorithm>

#include "keel/config/settings.h"

namespace keel {
namespace {

constexpr std::size_t kHelpWidth = 100;

std::string_view first_section_of(std::string_view key) {
  const std::size_t dot = key.find('.');
  return dot == std::string_view::npos ? std::string_view{} : key.substr(0, dot);
}

// Breaks `text` into lines of at most `width` characters, each after `indent` spaces.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
  std::string lines;
  std::size_t column = 0;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (column != 0 && column + 1 + word.size() > width) {
      lines += '\n';
      column = 0;
    }
    lines += column == 0 ? std::string(indent, ' ') : " ";
    column += (column == 0 ? indent : 1) + word.size();
    lines += word;
  }
  return lines + '\n';
}

// Values as code, words as words.
std::string default_cell(const SchemaRow& row) {
  const bool is_value = !row.standard.empty() && row.standard[0] != '=';
  return is_value ? fmt::format("`{}`", row.standard) : describe_default(row);
}

std::string heading(const SchemaRow& row, std::string_view key) {
  const std::string value = fmt::format("{} = {}", key, describe_default(row));
  const std::string condition = describe_condition(row);
  if (condition.empty()) return value + '\n';
  const std::string line = fmt::format("{}   (when {})\n", value, condition);
  return line.size() <= kHelpWidth
             ? line
             : fmt::format("{}\n{}", value, wrapped(fmt::format("(when {})", condition), 2, kHelpWidth));
}

// Calls f(row, key) for the row, and for each key of the mappings in a list, as "data.mixture[].path".
template <class F>
void each_key(const SchemaRow& row, const F& f) {
  f(row, std::string(row.key));
  if (row.field->parts() == nullptr) return;
  for (const SchemaRow& part : schema_rows(row.field->parts()->rows))
    f(part, fmt::format("{}[].{}", row.key, part.key));
}

std::string table_line(const SchemaRow& row, std::string_view key) {
  return fmt::format("| `{}` | {} | {} | {} | {} |\n", key, table_cell(describe_values(row)),
                     table_cell(default_cell(row)), table_cell(describe_condition(row)), table_cell(row.help));
}

}  // namespace

std::string table_cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string key_help(const Schema& schema) {
  return key_help(schema, [](const SchemaRow&) { return true; });
}

std::string key_help(const Schema& schema, const std::function<bool(const SchemaRow& row)>& shows) {
  std::string text;
  std::string_view section = "?";
  for (const SchemaRow& row : schema.rows()) {
    if (row.fixed || !shows(row)) continue;
    if (first_section_of(row.key) != section || section.empty()) text += '\n';
    section = first_section_of(row.key);
    each_key(row, [&](const SchemaRow& each, const std::string& key) {
      text += heading(each, key);
      text += wrapped(describe_values(each) + ". " + std::string(each.help), 4, kHelpWidth);
    });
  }
  return text;
}

std::string key_table(const Schema& schema, const std::function<bool(const SchemaRow& row)>& shows) {
  std::string text = "| key | values | default | applies when | meaning |\n|---|---|---|---|---|\n";
  for (const SchemaRow& row : schema.rows())
    if (!row.fixed && shows(row))
      each_key(row, [&](const SchemaRow& each, const std::string& key) { text += table_line(each, key); });
  return text;
}

std::string key_table(const Schema& schema, std::string_view section) {
  return key_table(schema, [&](const SchemaRow& row) { return first_section_of(row.key) == section; });
}

std::string key_tables(const Schema& schema) {
  std::string text;
  std::vector<std::string_view> sections;
  for (const SchemaRow& row : schema.rows())
    if (std::find(sections.begin(), sections.end(), first_section_of(row.key)) == sections.end())
      sections.push_back(first_section_of(row.key));
  for (const std::string_view section : sections)
    text += fmt::format("\n## {}\n\n", section.empty() ? "Top level" : section) + key_table(schema, section);
  return text;
}

}  // namespace keel
