#pragma once
// The evaluations of a run: all validation sets of its task.

#include "keel/dist/parallel/sharded.h"
#include "keel/tasks/task.h"
#include "keel/trainer/config.h"
#include "keel/trainer/progress.h"

namespace keel {

struct RunEvaluation {
  const Config& config;
  TaskBase& task;
  const Data& data;
  Sharded& engine;
  Communicator& ranks;

  // The values of all sets, each of so many batches, with the engine's weights as they are; a set's
  // name and '/' stand before its values. Every rank calls it and gets the same.
  EvalReport run(std::int64_t step, const BatchLimits& batches) const;
  // Evaluates config.eval.sanity batches of each set and drops the results. An Error says that it was this evaluation.
  void try_some() const;
};

}  // namespace keel
