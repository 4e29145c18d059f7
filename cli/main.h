#pragma once
// keel's commands for tasks of one's own: the whole program is
//
//   int main(int argc, char** argv) {
//     const keel::TaskEntry tasks[] = {keel::task_entry<MyTask>("mine", "what it learns", {rows})};
//     return keel::main(argc, argv, tasks);
//   }
//
// examples/own_task is such a program.

#include <span>

#include "keel/tasks/catalog.h"
#include "keel/trainer/callback.h"
#include "keel/trainer/strategies.h"

namespace keel {

// What the program `keel` does with these words, with `tasks` beside keel's own: train, launch, compare, plan, tasks,
// ... A configuration that names no task means the first of `tasks`. Returns the exit code (`keel --help` lists them);
// throws nothing. `callbacks` makes those of each rank that trains, from its configuration. `launch` starts this same
// program again as ranks, so main() does nothing else before, and writes nothing that ranks must not write each. A
// catalog that is wrong is told before anything runs, with code 2. Call it once, from the thread that main() has.
// `strategies` are further values of outer.type (examples/own_strategy).
int main(int argc, char** argv, std::span<const TaskEntry> tasks = {}, CallbackFactory callbacks = {},
         std::span<const StrategyEntry> strategies = {});

}  // namespace keel
