#pragma once
// The metrics of a trained model: those that training told of the same weights, to the bit.

#include <cstdint>
#include <string>
#include <vector>

#include "keel/runtime/json.h"
#include "keel/trainer/trained_model.h"

namespace keel {

// What a validation set without a name is called.
inline constexpr std::string_view kOnlySet = "validation";

struct EvaluatedSet {
  std::string name;                      // kOnlySet, or the task's
  std::int64_t batches = 0;              // that were evaluated
  std::vector<NamedNumber> values = {};  // by the names that the records of a run have
};

struct EvaluatedRun {
  std::string checkpoint, task, strategy;
  std::int64_t step = 0;
  int ranks = 1;
  std::vector<EvaluatedSet> sets = {};

  // {"checkpoint":...,"step":...,"sets":[{"set":"validation","batches":7,"values":{"validation_loss":2.5}}]}. What is
  // not defined is null. Says nothing of ranks and strategy, so that all of them write the same text.
  Json json() const;
};

// Evaluates on all validation sets of the task, or on the one that `on` names; eval.batches limits each. Every rank
// calls it. A set that is not there is an AgreedError that lists those that are; so is a task that has none.
EvaluatedRun evaluate_run(TrainedModel& trained, std::string_view on = {});

}  // namespace keel
