#pragma once
// The task that a configuration names.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "keel/tasks/task.h"

namespace keel {

struct Config;

// `host` is where batches are made. `run`: the folder of a run, whose files stand for the data; empty: none. `progress`
// is TaskSite::progress. Opens no data.
std::unique_ptr<TaskBase> make_task(const Config& config, const Context& host, const std::string& run = {},
                                    const std::function<void(std::uint64_t done, std::uint64_t all)>& progress = {});
// For formulas, which need no batches.
std::unique_ptr<TaskBase> make_task(const Config& config);

// An Error where the configuration asks the task for what it cannot do, or the task has nothing to train on.
Data open_training_data(Config& config, TaskBase& task);

// The loss of a micro-batch. An Error (unsupported) for a task that steers its own steps.
LossFunction loss_of(TaskBase& task);

// What measure_lengths() says of the task's data, which it opens, where the run is as long as so many epochs.
void measure_by_data(Config& config);

}  // namespace keel
