#include "keel/tasks/catalog.h"

#include <algorithm>

#include "keel/runtime/error.h"
#include "keel/runtime/printable.h"
#include "keel/tasks/fine_tuning.h"
#include "keel/tasks/language.h"
#include "keel/tasks/masked_language.h"
#include "keel/tasks/sequence_classification.h"
#include "keel/tasks/supervised.h"
#include "keel/tasks/token_classification.h"

namespace keel {

std::span<const TaskEntry> keel_tasks() {
  static const std::vector<TaskEntry> tasks = {
      language_task(),        supervised_task(), sequence_classification_task(), token_classification_task(),
      masked_language_task(), fine_tuning_task()};
  return tasks;
}

bool is_key_of(const TaskEntry& task, std::string_view key) {
  constexpr std::string_view kStacks = "stacks.";
  return std::ranges::find(task.rows, key, &KeyRow::key) != task.rows.end() ||
         (key.starts_with(kStacks) && std::ranges::find(task.stacks, key.substr(kStacks.size())) != task.stacks.end());
}

TaskCatalog::TaskCatalog(std::span<const TaskEntry> own, std::span<const std::string_view> taken)
    : entries_(keel_tasks().begin(), keel_tasks().end()) {
  if (!own.empty()) standard_ = entries_.size();
  std::string problems;
  const auto complain = [&](const TaskEntry& entry, std::string_view what) {
    problems += concat(problems.empty() ? "" : "\n", "task '", printable(entry.name, 64), "': ", what);
  };
  for (const TaskEntry& entry : own) {
    if (!is_name(entry.name)) complain(entry, "a name is letters, digits and _");
    if (find(entry.name) != nullptr) complain(entry, "there is one of this name already");
    if (entry.summary.empty() || entry.summary.find('\n') != std::string_view::npos)
      complain(entry, "needs a summary of one line");
    if (entry.make == nullptr) complain(entry, "has no function that makes it");
    for (const std::string_view stack : entry.stacks)
      if (!is_name(stack) || std::ranges::count(entry.stacks, stack) > 1)
        complain(entry, concat("'", printable(stack, 64), "': models have different names of letters, digits and _"));
    if (const std::string rows = complaint_about(entry.rows, taken); !rows.empty()) complain(entry, rows);
    entries_.push_back(entry);
  }
  if (!problems.empty()) throw Error(MessageLines{concat("the program's tasks: ", problems)});
}

const TaskEntry* TaskCatalog::find(std::string_view name) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const TaskEntry& entry) { return entry.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

}  // namespace keel
