// The section `scheduler`: its rows, made from the table of schedules, and schedules inside lists.

#include <algorithm>
#include <charconv>

#include "keel/runtime/error.h"
#include "keel/trainer/schema_rows.h"

namespace keel {
namespace {

using P = ScheduleParameter;

const ScheduleKind& kind_of(const ScheduleSettings& settings) {
  return schedule_kinds()[static_cast<std::size_t>(settings.type)];
}

// Two uses that one row can describe.
bool same_row(const ScheduleUse& a, const ScheduleUse& b) {
  return a.parameter == b.parameter && a.standard == b.standard && a.choices == b.choices;
}

Range range_of(const ScheduleLimits& limits) { return {limits.low, limits.high, limits.low_open, limits.high_open}; }

FieldPtr type_field() {
  std::string names, others;
  for (const ScheduleKind& kind : schedule_kinds()) {
    names += concat(names.empty() ? "" : "|", kind.name);
    for (const std::string_view alias : split_choices(kind.aliases))
      others += concat(others.empty() ? "" : "|", alias, "=", kind.name);
  }
  return choice_field([](const Config& config) { return config.scheduler.settings.type; },
                      [](Config& config, int type) { config.scheduler.settings.type = type; }, kept(names),
                      kept(others));
}

// One row for each different use of the parameter, with the schedules that use it so.
void add_rows(P parameter, std::vector<SchemaRow>& rows) {
  std::vector<const ScheduleUse*> described;
  for (const ScheduleKind& kind : schedule_kinds()) {
    const ScheduleUse* use = kind.find(parameter);
    if (use == nullptr || std::any_of(described.begin(), described.end(),
                                      [&](const ScheduleUse* other) { return same_row(*other, *use); }))
      continue;
    described.push_back(use);
    std::string users;
    for (const ScheduleKind& other : schedule_kinds())
      if (const ScheduleUse* same = other.find(parameter); same != nullptr && same_row(*same, *use))
        users += concat(users.empty() ? "" : "|", other.name);
    const ScheduleParameterRow& row = schedule_parameter(parameter);
    rows.push_back({.key = kept(concat("scheduler.", row.name)),
                    .field = schedule_field(*use),
                    .standard = use->standard,
                    .range = range_of(row.limits),
                    .when = {"scheduler.type", kept(users)},
                    .help = row.help,
                    .known_as = {},
                    .aliases = row.aliases,
                    .ratio_aliases = row.ratio_aliases});
  }
}

template <class Number>
bool parse_whole(const YamlNode& node, Number& value) {
  const std::string& text = node.text;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return node.kind == YamlNode::Kind::scalar && !node.quoted && error == std::errc{} &&
         end == text.data() + text.size();
}

[[noreturn]] void refuse(const ScheduleUse& use, const YamlNode& node) {
  const std::string got = node.kind == YamlNode::Kind::scalar ? concat("'", node.text.substr(0, 60), "'")
                          : node.kind == YamlNode::Kind::list ? "a list"
                          : node.kind == YamlNode::Kind::null ? "nothing"
                                                              : "a mapping";
  throw Error(concat("expects ", describe_schedule_values(use), ", got ", got,
                     node.quoted ? " in quotes, which make it a text" : ""));
}

const ScheduleUse* use_named(const ScheduleKind& kind, std::string_view name) {
  for (const ScheduleUse& use : kind.parameters)
    if (schedule_parameter(use.parameter).name == name) return &use;
  return nullptr;
}

// A schedule in a list. `where` is its place there, for messages.
ScheduleSettings read_schedule(const YamlNode& node, const std::string& where) {
  if (node.kind != YamlNode::Kind::mapping || node.entries.empty())
    throw YamlError(node.line, concat(where, ": expects a schedule, as in {type: StepLR, step_size: 30}"));
  const auto type = std::find_if(node.entries.begin(), node.entries.end(),
                                 [](const YamlEntry& entry) { return entry.key == "type"; });
  if (type == node.entries.end()) throw YamlError(node.line, concat(where, ": its type is missing"));
  const auto at = [&](int line, std::string_view key, const auto& read) {
    try {
      return read();
    } catch (const YamlError& error) {
      throw YamlError(error.line(), concat(where, ".", key, error.what()));
    } catch (const Error& error) { throw YamlError(line, concat(where, ".", key, ": ", error.what())); }
  };
  ScheduleSettings settings = at(type->line, "type", [&] {
    return default_schedule(schedule_kinds()[static_cast<std::size_t>(find_schedule(type->value.text))].name);
  });
  const ScheduleKind& kind = kind_of(settings);
  std::vector<P> given;
  for (const YamlEntry& entry : node.entries) {
    if (entry.key == "type") continue;
    YamlNode value = entry.value;
    const std::string own =
        own_schema()->own_key("scheduler." + entry.key, value).substr(std::string_view("scheduler.").size());
    at(entry.line, own, [&] {
      const ScheduleUse* use = use_named(kind, own);
      if (use == nullptr) {
        std::vector<std::string_view> names;
        for (const ScheduleUse& known : kind.parameters) names.push_back(schedule_parameter(known.parameter).name);
        const std::string likely = nearest(own, names);
        throw Error(concat(kind.name, " has no such parameter",
                           likely.empty() ? "" : concat("; did you mean '", likely, "'?")));
      }
      if (std::find(given.begin(), given.end(), use->parameter) != given.end()) throw Error("is given twice");
      given.push_back(use->parameter);
      set_schedule_value(*use, settings, value);
    });
  }
  for (const ScheduleUse& use : kind.parameters)
    if (use.standard.empty() && std::find(given.begin(), given.end(), use.parameter) == given.end())
      throw YamlError(node.line,
                      concat(where, ".", schedule_parameter(use.parameter).name, ": is missing, and has no default"));
  return settings;
}

std::string schedule_text(const ScheduleSettings& settings) {
  std::string text = concat("{type: ", kind_of(settings).name);
  for (const ScheduleUse& use : kind_of(settings).parameters)
    text += concat(", ", schedule_parameter(use.parameter).name, ": ", schedule_field_text(use, settings));
  return text + "}";
}

// "[a, b]".
template <class Item, class Text>
std::string list_text(const std::vector<Item>& items, const Text& text_of) {
  std::string text;
  for (const Item& item : items) text += concat(text.empty() ? "" : ", ", text_of(item));
  return concat("[", text, "]");
}

}  // namespace

void set_schedule_value(const ScheduleUse& use, ScheduleSettings& settings, const YamlNode& node) {
  if (use.parameter == P::milestones) {
    if (node.kind != YamlNode::Kind::list || node.items.empty()) refuse(use, node);
    settings.milestones.clear();
    for (const YamlNode& item : node.items)
      if (!parse_whole(item, settings.milestones.emplace_back()) || settings.milestones.back() < 1) refuse(use, item);
  } else if (use.parameter == P::schedules) {
    if (node.kind != YamlNode::Kind::list || node.items.empty()) refuse(use, node);
    settings.parts.clear();
    for (std::size_t i = 0; i < node.items.size(); ++i)
      settings.parts.push_back(read_schedule(node.items[i], concat("[", i, "]")));
  } else {
    if (node.kind != YamlNode::Kind::scalar || node.quoted) refuse(use, node);
    settings[use.parameter] = read_schedule_value(use, node.text);
  }
}

std::string schedule_field_text(const ScheduleUse& use, const ScheduleSettings& settings) {
  if (use.parameter == P::milestones)
    return list_text(settings.milestones, [](std::int64_t step) { return std::to_string(step); });
  if (use.parameter == P::schedules) return list_text(settings.parts, schedule_text);
  return schedule_value_text(use, settings[use.parameter]);
}

std::vector<SchemaRow> scheduler_rows() {
  std::vector<SchemaRow> rows = {
      {.key = "scheduler.type",
       .field = type_field(),
       .standard = "cosine",
       .range = {},
       .when = {},
       .help = "How the learning rate changes; docs/schedules.md has the formulas.",
       .known_as = "lr_scheduler|schedule|name"},
      {.key = "scheduler.interval",
       .field = choice_field(
           [](const Config& config) { return static_cast<int>(config.scheduler.interval); },
           [](Config& config, int value) { config.scheduler.interval = static_cast<SchedulerConfig::Interval>(value); },
           "step|epoch", "false=step|true=epoch"),
       .standard = "step",
       .range = {},
       .when = {},
       .help = "What the schedule counts, and its parameters with it: steps, or epochs of steps_per_epoch steps.",
       .known_as = {},
       .aliases = "scheduler_interval|step_scheduler_per_epoch"},
      {.key = "scheduler.steps_per_epoch",
       .field = member(+[](Config& config) -> std::int64_t& { return config.scheduler.steps_per_epoch; }),
       .standard = "",
       .range = {.low = 1},
       .when = {"scheduler.interval", "epoch"},
       .help = "Optimizer steps of an epoch."},
      {.key = "scheduler.frequency",
       .field = member(+[](Config& config) -> std::int64_t& { return config.scheduler.frequency; }),
       .standard = "1",
       .range = {.low = 1},
       .when = {},
       .help = "The schedule moves on after so many steps, or epochs.",
       .known_as = {},
       .aliases = "scheduler_frequency"}};
  for (std::size_t i = 0; i < kScheduleParameters; ++i) add_rows(static_cast<P>(i), rows);
  for (SchemaRow& row : rows) row.on_resume = OnResume::paces;
  return rows;
}

}  // namespace keel
