#pragma once
// The names of keel's tasks as messages list them.

#include <string>
#include <string_view>

#include "keel/tasks/catalog.h"

namespace keel::testing {

// "a, b, c", or with `last` before the last one: "a, b or c".
inline std::string task_names(std::string_view last = ", ") {
  std::string names;
  const auto tasks = keel_tasks();
  for (const TaskEntry& task : tasks)
    names += concat(names.empty() ? "" : &task == &tasks.back() ? last : ", ", task.name);
  return names;
}

}  // namespace keel::testing
