// The schema in words: messages, --help-config and docs/config.md.

#include <fmt/format.h>

#include <algorithm>

#include "keel/runtime/error.h"
#include "keel/trainer/schema.h"

namespace keel {
namespace {

constexpr std::size_t kHelpWidth = 100;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// "AdamW, SGD or Lion".
std::string listed(std::string_view choices) {
  const std::vector<std::string_view> parts = split_choices(choices);
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? " or " : ", ";
    text += parts[i];
  }
  return text;
}

// " > 0", " <= 0", " from 0 to 0.5", " from 0 to below 1".
std::string describe_range(const Range& range) {
  if (range.low == -kNoLimit && range.high == kNoLimit) return "";
  if (range.high == kNoLimit) return fmt::format(" {} {}", range.low_open ? ">" : ">=", range.low);
  if (range.low == -kNoLimit) return fmt::format(" {} {}", range.high_open ? "<" : "<=", range.high);
  return fmt::format(" {} {} {} {}", range.low_open ? "above" : "from", range.low, range.high_open ? "to below" : "to",
                     range.high);
}

struct ValueWords {
  const Range& range;
  std::string operator()(Access<bool>) const { return "true or false"; }
  std::string operator()(Access<int>) const { return "a whole number" + describe_range(range); }
  std::string operator()(Access<std::int64_t>) const { return "a whole number" + describe_range(range); }
  std::string operator()(Access<std::uint64_t>) const { return "a whole number from 0 to 18446744073709551615"; }
  std::string operator()(Access<double>) const { return "a number" + describe_range(range); }
  std::string operator()(Access<std::array<double, 2>>) const {
    return "a list of two numbers" + describe_range(range);
  }
  std::string operator()(Access<std::string>) const { return "a path"; }
  std::string operator()(Access<std::vector<GroupPattern>>) const { return "a list of groups"; }
  std::string operator()(const ChoiceField& field) const { return listed(field.choices); }
  std::string operator()(const ParsedField& field) const { return std::string(field.grammar); }
  std::string operator()(const ScheduleField& field) const { return describe_schedule_values(*field.use); }
};

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

// In a Markdown table cell a vertical bar would end the cell.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// Values as code, words as words.
std::string default_cell(const SchemaRow& row) {
  const bool is_value = !row.standard.empty() && row.standard[0] != '=';
  return is_value ? fmt::format("`{}`", row.standard) : describe_default(row);
}

std::string heading(const SchemaRow& row) {
  const std::string value = fmt::format("{} = {}", row.key, describe_default(row));
  const std::string condition = describe_condition(row);
  if (condition.empty()) return value + '\n';
  const std::string line = fmt::format("{}   (when {})\n", value, condition);
  return line.size() <= kHelpWidth
             ? line
             : fmt::format("{}\n{}", value, wrapped(fmt::format("(when {})", condition), 2, kHelpWidth));
}

constexpr std::string_view kExample = R"(seed: 1
steps: 2000
model: {type: gpt, layers: 4, heads: 4, width: 128, block: 64}
data: {type: text, path: corpus.txt, tokenizer: byte, validation: 0.1}
batch: {global: 48, micro: 12}
optimizer: {type: AdamW, lr: 1e-3, betas: [0.9, 0.99], weight_decay: 0.1}
scheduler: {type: cosine, warmup: 100, min_lr: 1e-4}
eval: {every: 250}
checkpoint: {every: 500, keep: 2}
strategy: bf16
device: auto
)";

constexpr std::string_view kConfigIntroduction = R"(# Configuration

`keel train CONFIG.yaml [KEY=VALUE ...]` reads one YAML file. Every key is listed below; a key that is unknown,
contradicts another one or has a value out of range is an error that names file, line and the nearest key, and
nothing is started. A file gives only what differs from the defaults:

```yaml
{}```

- On the command line `optimizer.lr=3e-4` replaces one value and `model={{layers: 2, width: 64}}` a whole section.
  Later ones win. Where one replaces a type, as `data.type=tokens` does, keys of the file that do not apply to the new type
  are left out, with a note.
- In paths `~/` is the home folder.
- The run writes `config.yaml` into its folder, with every default filled in. Training from that file repeats the run.
- Anchors, tags, tabs as indentation and several documents in a file are refused.
)";

}  // namespace

std::string describe_values(const SchemaRow& row) { return std::visit(ValueWords{row.range}, row.field); }

std::string describe_default(const SchemaRow& row) {
  if (row.standard.empty()) return "required";
  if (row.standard[0] == '=') return fmt::format("value of {}", row.standard.substr(1));
  return std::string(row.standard);
}

std::string describe_condition(const SchemaRow& row) {
  if (row.when.key.empty()) return "";
  return fmt::format("{} is {}{}", row.when.key, row.when.except ? "not " : "", listed(row.when.values));
}

std::string describe_conditions(std::span<const SchemaRow> rows) {
  std::string values;
  for (const SchemaRow& row : rows) values += concat(values.empty() ? "" : "|", row.when.values);
  SchemaRow any = rows[0];
  any.when.values = values;
  return describe_condition(any);
}

std::string_view config_example() { return kExample; }

std::string config_help() {
  std::string text = "Keys of a configuration: name = default, then its values and its meaning.\n";
  std::string_view section = "?";
  for (const SchemaRow& row : schema()) {
    if (first_section_of(row.key) != section || section.empty()) text += '\n';
    section = first_section_of(row.key);
    text += heading(row);
    text += wrapped(describe_values(row) + ". " + std::string(row.help), 4, kHelpWidth);
  }
  return text;
}

std::string config_reference() {
  std::string text = fmt::format(fmt::runtime(kConfigIntroduction), kExample);
  std::vector<std::string_view> sections;
  for (const SchemaRow& row : schema())
    if (std::find(sections.begin(), sections.end(), first_section_of(row.key)) == sections.end())
      sections.push_back(first_section_of(row.key));
  for (const std::string_view section : sections) {
    text += fmt::format("\n## {}\n\n", section.empty() ? "Top level" : section);
    text += "| key | values | default | applies when | meaning |\n|---|---|---|---|---|\n";
    for (const SchemaRow& row : schema())
      if (first_section_of(row.key) == section)
        text += fmt::format("| `{}` | {} | {} | {} | {} |\n", row.key, cell(describe_values(row)),
                            cell(default_cell(row)), cell(describe_condition(row)), cell(row.help));
  }
  return text + "\nThis page is written by `keel docs config`.\n";
}

}  // namespace keel
