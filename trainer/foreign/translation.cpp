#include "keel/trainer/foreign/translation.h"

#include <algorithm>

#include "keel/config/pages.h"
#include "keel/config/schema_row.h"
#include "keel/config/values.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/foreign/kind.h"
#include "keel/trainer/foreign/reading.h"

namespace keel {
namespace {

// JSON may be indented by tabs, YAML may not.
std::string without_tabs(std::string_view text) {
  std::string spaced(text);
  const std::size_t first = spaced.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || spaced[first] != '{') return spaced;
  bool is_indentation = true;
  for (char& c : spaced) {
    if (c == '\t' && is_indentation) c = ' ';
    is_indentation = c == '\n' || (is_indentation && c == ' ');
  }
  return spaced;
}

// Gives a key its value: "optimizer.lr", or a whole section.
void set_key(YamlNode& root, std::string_view key, const YamlNode& value) {
  const std::size_t dot = std::min(key.find('.'), key.size());
  const std::string_view first = key.substr(0, dot);
  auto entry =
      std::find_if(root.entries.begin(), root.entries.end(), [&](const YamlEntry& each) { return each.key == first; });
  if (entry == root.entries.end())
    entry =
        root.entries.insert(entry, {std::string(first), value.line, YamlNode::of(YamlNode::Kind::mapping, value.line)});
  if (dot == key.size()) entry->value = value;
  else set_key(entry->value, key.substr(dot + 1), value);
}

// "`KEY` of `TASK`", of every task that has one.
std::string keys_of_tasks(KeyRole role) {
  std::string text;
  for (const TaskEntry& task : keel_keys()->tasks().entries())
    if (const std::string_view key = keel_keys()->schema(task.name).key_of(role); !key.empty())
      text += concat(text.empty() ? "`" : ", `", key, "` of `", task.name, '`');
  return text;
}

std::string describe_way(const ForeignRow& row) {
  std::string text;
  for (const std::string_view key : split_choices(row.to)) text += concat(text.empty() ? "`" : ", `", key, '`');
  if (row.role != KeyRole::none) text += concat(words_of(row.role), ": ", keys_of_tasks(row.role));
  if (row.way == ForeignRow::Way::mapped && !row.values.empty()) {
    std::string all;
    for (const std::string_view pair : split_choices(row.values)) {
      const std::string_view before = pair.substr(0, pair.find('=')), after = pair.substr(pair.find('=') + 1);
      all += concat(all.empty() ? "" : ", ", before, before == after ? "" : concat(" is ", after));
    }
    text += concat(": ", all);
  }
  if (!row.note.empty()) text += concat(text.empty() ? "" : "; ", row.note);
  if (row.way == ForeignRow::Way::refused && !row.values.empty())
    text += concat("; taken where it is ", listed(row.values));
  if (!row.answered_by.empty()) text += concat("; not where you say ", listed(row.answered_by), " yourself");
  if (!row.automatic.empty()) text += concat("; auto: ", row.automatic);
  return text;
}

constexpr std::string_view kForeignPage = R"(# Files of other trainers

`keel train FILE [KEY=VALUE ...]` takes configuration files of other trainers as they are, and so do `launch`, `compare`,
`plan` and `schedule`. A file is known by its content. `keel config --from FILE --out c.yaml` writes keel's own file from
one, with a line for each key: what it became, or why it is refused.

- What these files do not say is given as KEY=VALUE: the data, the model, and steps where a file counts epochs.
  KEY=VALUE replaces what a file says, and answers for a key that would be refused.
- A key that keel does not know may change results. It is refused with file, line and the nearest key, and nothing is
  started or written. So is one that contradicts another, or another file.
- `keel train c.yaml --deepspeed_config_file ds.json` reads DeepSpeed's JSON beside a configuration of keel's. What both
  say must be the same; `"auto"` leaves it to the configuration.
- *taken*: keel does so anyway, or it changes no result. *mapped*: it becomes keys of keel's. *refused*: keel has nothing
  like it, or has it under another name that must be chosen.

)";

}  // namespace

std::string_view name_of(ForeignTold::Verdict verdict) {
  constexpr std::string_view kNames[] = {"taken", "mapped", "yours", "refused"};
  return kNames[static_cast<std::size_t>(verdict)];
}

bool ForeignTranslation::is_refused() const {
  return std::any_of(told.begin(), told.end(),
                     [](const ForeignTold& each) { return each.verdict == ForeignTold::Verdict::refused; });
}

std::string ForeignTranslation::problems() const {
  std::string text;
  for (const ForeignTold& each : told)
    if (each.verdict == ForeignTold::Verdict::refused)
      text +=
          concat(text.empty() ? "" : "\n",
                 printable(concat(each.file, ':', each.line, ": ", each.key, each.key.empty() ? "" : ": ", each.text)));
  return text;
}

std::string ForeignTranslation::yaml(const Schema& schema, const std::vector<std::string>& overrides) const {
  YamlNode all = YamlNode::of(YamlNode::Kind::mapping, 1);
  for (const NamedTree& tree : trees)
    for (const YamlEntry& entry : tree.root.entries) {
      if (entry.value.kind != YamlNode::Kind::mapping) all.entries.push_back(entry);
      for (const YamlEntry& each : entry.value.entries) set_key(all, concat(entry.key, '.', each.key), each.value);
    }
  for (const std::string& text : overrides) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) throw Error(concat("'", text, "': expects KEY=VALUE, as in optimizer.lr=3e-4"));
    YamlNode value = read_yaml(std::string_view(text).substr(equals + 1)).root;
    const std::string key = schema.own_key(text.substr(0, equals), value);
    set_key(all, key, value);
  }
  std::string text;
  for (const YamlEntry& entry : all.entries) {
    if (entry.value.kind != YamlNode::Kind::mapping) {
      text += concat(entry.key, ": ", flow_text(entry.value), '\n');
      continue;
    }
    text += concat(entry.key, ":\n");
    for (const YamlEntry& each : entry.value.entries) text += concat("  ", each.key, ": ", flow_text(each.value), '\n');
  }
  return text;
}

ForeignTranslation translate(const ForeignKind& kind, std::string_view file, const YamlNode& root,
                             const ForeignRequest& request) {
  ForeignReading reading(kind, request);
  reading.read(file, root);
  return reading.finish();
}

YamlNode read_foreign(std::string_view name, std::string_view text) {
  const YamlDocument document = read_yaml(without_tabs(text));
  if (document.problems.empty()) return document.root;
  std::string message;
  for (const YamlProblem& problem : document.problems)
    message += concat(message.empty() ? "" : "\n", printable(concat(name, ':', problem.line, ": ", problem.message)));
  throw Error(MessageLines{message});
}

std::string foreign_reference() {
  std::string page(kForeignPage);
  for (const ForeignKind* const each : foreign_kinds()) {
    const ForeignKind& kind = *each;
    page += concat("## ", kind.title, "\n\n", kind.about, "\n\nKnown by `", kind.signs.substr(0, kind.signs.find('|')),
                   '`');
    for (const std::string_view sign : split_choices(kind.signs))
      if (!kind.signs.starts_with(sign)) page += concat(", `", sign, '`');
    page += " at its top.";
    if (kind.task_role != KeyRole::none)
      page += concat(" Where no `task.type` is given, it means the first task with ", words_of(kind.task_role), ": ",
                     keys_of_tasks(kind.task_role), '.');
    page += "\n\n| key | what | how |\n|---|---|---|\n";
    constexpr std::string_view kWays[] = {"taken", "mapped", "refused"};
    for (const ForeignRow& row : kind.rows)
      page += concat("| `", row.key, "` | ", kWays[static_cast<std::size_t>(row.way)], " | ",
                     table_cell(describe_way(row)), " |\n");
    page += '\n';
  }
  return page + "This page is written by `keel docs foreign`.\n";
}

}  // namespace keel
