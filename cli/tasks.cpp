// `keel tasks`: what this program can learn, and the keys of each task.

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>

#include "commands.h"
#include "keel/config/pages.h"
#include "keel/runtime/error.h"
#include "program_keys.h"

namespace keel::cli {
namespace {

void list() {
  const TaskCatalog& tasks = program_keys()->tasks();
  std::size_t width = 0;
  for (const TaskEntry& task : tasks.entries()) width = std::max(width, task.name.size());
  for (const TaskEntry& task : tasks.entries())
    std::cout << fmt::format(
        "{:<{}}  {}{}\n", task.name, width, task.summary,
        &task == &tasks.standard() && tasks.entries().size() > 1 ? " (where task.type is not given)" : "");
}

void show_task(const std::string& name) {
  const TaskCatalog& tasks = program_keys()->tasks();
  const TaskEntry* task = tasks.find(name);
  if (task == nullptr) {
    std::vector<std::string_view> names;
    for (const TaskEntry& each : tasks.entries()) names.push_back(each.name);
    const std::string likely = nearest(name, names);
    throw Error(concat("there is no task '", name, "'",
                       likely.empty() ? "; `keel tasks` lists them" : concat(", did you mean '", likely, "'?")));
  }
  std::cout << task->name << ": " << task->summary << '\n';
  std::cout << key_help(program_keys()->schema(task->name),
                        [&](const SchemaRow& row) { return is_key_of(*task, row.key); });
}

}  // namespace

Command tasks_command() {
  const auto name = std::make_shared<std::string>();
  return {.name = "tasks",
          .help = "What can be learnt: the tasks, and their keys of a configuration.",
          .positionals = {{"TASK", "", name.get(), "Show its keys; without it all tasks are listed."}},
          .footer = "\nExamples:\n  keel tasks\n  keel tasks language\n  keel tasks supervised",
          .run = [name](const Call&) {
            if (name->empty()) list();
            else show_task(*name);
            return 0;
          }};
}

}  // namespace keel::cli
