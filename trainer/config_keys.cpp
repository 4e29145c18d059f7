#include "keel/trainer/config_keys.h"

#include <algorithm>
#include <optional>

#include "keel/config/resolver.h"
#include "keel/config/values.h"
#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/runtime/processor.h"
#include "keel/trainer/config.h"
#include "keel/trainer/schema_rows.h"

namespace keel {
namespace {

// task.type, among the program's tasks.
class TaskField : public KeyField {
 public:
  explicit TaskField(std::string_view choices) : choices_(choices) {}
  std::string values(const SchemaRow& /*row*/) const override { return listed(choices_); }
  void set(const SchemaRow& row, Settings& settings, const YamlNode& node) const override {
    const auto place = static_cast<std::size_t>(read_choice(row, node, choices_));
    config_of(settings).task = split_choices(choices_)[place];
  }
  std::string text(const SchemaRow& /*row*/, const Settings& settings) const override {
    return config_of(settings).task;
  }
  std::string_view choices() const override { return choices_; }

 private:
  std::string_view choices_;
};

std::vector<std::string_view> keys_of(const Schema& schema) {
  std::vector<std::string_view> keys = {"task.type"};
  for (const SchemaRow& row : schema.rows())
    if (row.key != keys.back()) keys.push_back(row.key);
  return keys;
}

// The row at the head of its section, or of all sections.
std::shared_ptr<const Schema> with_first(const SchemaRow& row, const Schema& schema) {
  std::vector<SchemaRow> rows(schema.rows().begin(), schema.rows().end());
  const bool has_section = schema.is_section(section_of(row.key));
  const auto place = std::find_if(rows.begin(), rows.end(), [&](const SchemaRow& other) {
    const std::string_view section = section_of(other.key);
    return has_section ? section == section_of(row.key) : !section.empty();
  });
  rows.insert(place, row);
  const std::span<const RetiredKey> retired = schema.retired();
  return std::make_shared<const Schema>(std::move(rows), std::vector<RetiredKey>(retired.begin(), retired.end()));
}

// Those of a task: its own, and one for each model that it trains by name.
std::vector<KeyRow> rows_of(const TaskEntry& entry) {
  std::vector<KeyRow> rows = entry.rows;
  for (const std::string_view stack : entry.stacks)
    rows.push_back(
        {.key = kept(concat("stacks.", stack)),
         .type = KeyType::texts,
         .standard = "[]",
         .help = kept(concat("What is other for the model ", stack,
                             ": keys of optimizer, scheduler, clip and loss_scale, such as optimizer.lr=1e-4.")),
         .on_resume = ResumeRule::warns});
  return rows;
}

// keel's first. An Error lists what is wrong with the others.
std::vector<StrategyEntry> all_strategies(std::span<const StrategyEntry> own) {
  std::vector<StrategyEntry> all(keel_strategies().begin(), keel_strategies().end());
  std::string complaints;
  for (const StrategyEntry& entry : own) {
    const auto complain = [&](std::string_view what) {
      complaints += concat(complaints.empty() ? "" : "\n", "strategy '", printable(entry.name, 64), "': ", what);
    };
    if (entry.name.empty() || entry.name == "none" || find_strategy(all, entry.name) != nullptr)
      complain("its name is taken, or is none");
    if (!entry.make) complain("nothing makes it");
    for (const KeyRow& row : entry.rows)
      if (!row.key.starts_with("outer.") || row.key == "outer.type" || row.key == "outer.on_failure")
        complain(concat("the key ", row.key, " is not one of its own in the section outer"));
    all.push_back(entry);
  }
  if (!complaints.empty()) throw Error(MessageLines{complaints});
  return all;
}

std::optional<std::string> unknown_task(const ConfigKeys& keys, std::string_view yaml) {
  const std::optional<std::string> task = written_value(yaml, {}, "task.type");
  return task.value_or("").empty() || keys.tasks().find(*task) != nullptr ? std::nullopt : task;
}

std::optional<std::string> unknown_strategy(const ConfigKeys& keys, std::string_view yaml) {
  const std::optional<std::string> strategy = written_value(yaml, {}, "outer.type");
  const bool is_known = strategy.value_or("none") == "none" || find_strategy(keys.strategies(), *strategy) != nullptr;
  return is_known ? std::nullopt : strategy;
}

template <class Entries>
std::string known_names(const Entries& entries) {
  std::string names;
  for (const auto& each : entries) names += concat(names.empty() ? "" : ", ", each.name);
  return names;
}

}  // namespace

ConfigKeys::ConfigKeys(std::span<const TaskEntry> own, std::span<const StrategyEntry> strategies)
    : strategies_(all_strategies(strategies)), base_(schema_with(strategies_)), tasks_(own, keys_of(*base_)) {
  std::string names;
  for (const TaskEntry& entry : tasks_.entries()) names += concat(names.empty() ? "" : "|", entry.name);
  SchemaRow type;
  type.key = "task.type";
  type.field = std::make_shared<TaskField>(kept(std::move(names)));
  type.standard = tasks_.standard().name;
  type.help = "What is learnt, and from what data; `keel tasks` lists them with the keys of each.";
  type.on_resume = OnResume::refuses;
  for (const TaskEntry& entry : tasks_.entries())
    schemas_.emplace(entry.name, with_first(type, *joined(*base_, rows_of(entry))));
}

const Schema& ConfigKeys::schema(std::string_view task) const {
  const auto found = schemas_.find(task);
  if (found == schemas_.end())
    throw Error(concat("there is no task '", task, "' in this program"), ErrorKind::internal);
  return *found->second;
}

const std::shared_ptr<const ConfigKeys>& keel_keys() {
  check_processor();
  static const std::shared_ptr<const ConfigKeys> keys = std::make_shared<const ConfigKeys>();
  return keys;
}

std::string unknown_part(const ConfigKeys& keys, std::string_view yaml) {
  if (const auto task = unknown_task(keys, yaml)) return concat("the task '", *task, "'");
  if (const auto strategy = unknown_strategy(keys, yaml))
    return concat("the strategy of communication '", *strategy, "'");
  return "";
}

void check_is_known(const ConfigKeys& keys, std::string_view yaml, std::string_view name) {
  const std::string part = unknown_part(keys, yaml);
  if (part.empty()) return;
  const std::string known =
      unknown_task(keys, yaml) ? known_names(keys.tasks().entries()) : known_names(keys.strategies());
  throw UnknownTask(concat("'", name, "' is of ", part, ", which this program does not have; it has ", known,
                           ". Ask the program that trained it"));
}

Config parse_stored_config(const std::shared_ptr<const ConfigKeys>& keys, std::string_view yaml, std::string_view name,
                           const std::vector<std::string>& overrides, std::vector<std::string>* notes) {
  if (unknown_task(*keys, yaml)) check_is_known(*keys, yaml, name);
  std::vector<std::string> all = overrides;
  if (unknown_strategy(*keys, yaml)) all.insert(all.begin(), "outer={type: none}");
  return parse_config(keys, yaml, name, all, "command line", notes);
}

}  // namespace keel
