#pragma once
// What runs the steps of a task.

#include <cstdint>
#include <memory>

#include "keel/trainer/run_stacks.h"
#include "keel/trainer/run_steps.h"

namespace keel {

struct StepsSite {
  const Config& config;
  TaskBase& task;
  RunStacks& stacks;
  Communicator& ranks;  // another communicator than the engines'
  std::shared_ptr<const BatchSource> source;
  std::int64_t micro_batches = 1;  // of a step, at most
  double rate_factor = 1;
  StepWatcher* watcher = nullptr;  // null: nobody is told
};

// TrainingSteps, or ManualSteps for a ManualTask, that go on after `step` steps. `curves`: of the only model that is
// trained; models with names have their own. What the site names outlives the steps.
std::unique_ptr<RunSteps> make_steps(const StepsSite& site, const StepCurves& curves, std::int64_t step);

}  // namespace keel
