#pragma once
// The catalog of tasks: those of keel, and those of a program that was built with it.

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/config/settings.h"
#include "keel/tasks/task.h"

namespace keel {

// `keel tasks` lists it, `task.type` names it, and its rows join the configuration's keys where it is named.
struct TaskEntry {
  std::string_view name;     // letters, digits and _
  std::string_view summary;  // one line
  std::vector<KeyRow> rows = {};
  // Opens no data and makes no memory. A setting that makes no sense with another is an Error that names both keys.
  std::unique_ptr<TaskBase> (*make)(const TaskSite& site) = nullptr;
  // The same, where a configuration is read and file and line can be told; not called where a value is missing or
  // wrong. Null: nothing to say.
  std::vector<SettingsComplaint> (*complain)(const Settings& settings) = nullptr;
  // Names of the models that are trained, of a task with several (ManualTask): each has a key stacks.NAME.
  std::vector<std::string_view> stacks = {};
  // YAML of the sections task, model and data, as pages show it; empty: they show none.
  std::string_view example = {};

  // YAML of the sections task, model and data by which a model answers that lies in a folder of Hugging Face's form,
  // with its own tokenizer; empty: the task has none of this architecture. Null: of none.
  std::string (*of_hub)(const std::string& folder) = nullptr;

  // Names of the models that are trained: those, or one that is empty.
  std::vector<std::string> model_names() const {
    if (stacks.empty()) return {""};
    return {stacks.begin(), stacks.end()};
  }
};

// Whether the key is of one of its rows, or of one of its models (stacks.NAME).
bool is_key_of(const TaskEntry& task, std::string_view key);

// The entry of a class that is made of a TaskSite.
template <class T>
TaskEntry task_entry(std::string_view name, std::string_view summary, std::vector<KeyRow> rows = {},
                     std::vector<std::string_view> stacks = {}) {
  TaskEntry entry{name, summary, std::move(rows),
                  [](const TaskSite& site) -> std::unique_ptr<TaskBase> { return std::make_unique<T>(site); }};
  entry.stacks = std::move(stacks);
  return entry;
}

// keel's own, in the order of documentation.
std::span<const TaskEntry> keel_tasks();

// Entries as one list. An Error that lists everything wrong with it: two of one name (a program's own may not replace
// keel's), a name that is none, and complaint_about() its rows.
class TaskCatalog {
 public:
  // keel's first, then these. `taken`: keys of the program that are no task's.
  explicit TaskCatalog(std::span<const TaskEntry> own = {}, std::span<const std::string_view> taken = {});
  std::span<const TaskEntry> entries() const { return entries_; }
  // What a configuration means that names none: the first of a program's own; without any, keel's first.
  const TaskEntry& standard() const { return entries_[standard_]; }
  // Null: there is none of this name.
  const TaskEntry* find(std::string_view name) const;

 private:
  std::vector<TaskEntry> entries_;
  std::size_t standard_ = 0;
};

}  // namespace keel
