#pragma once
// Training steps of one rank, whoever steers them.

#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "keel/dist/parallel/sharded.h"
#include "keel/tasks/metric.h"
#include "keel/trainer/step_note.h"

namespace keel {

// Is told of a step's parts as they are asked for.
class StepWatcher {
 public:
  virtual ~StepWatcher() = default;
  virtual void before_backward(std::int64_t micro_batch) = 0;
  virtual void after_backward(std::int64_t micro_batch) = 0;
  virtual void out_of_memory(const std::exception& error) = 0;
  virtual void before_optimizer_step() = 0;
  virtual void after_optimizer_step() = 0;
};

// What has become of an update.
struct ModelUpdate {
  std::string model;  // by name; empty: the only one
  StepResult result;
};

struct StepOutcome {
  std::int64_t step = 0;  // counted from 1
  double loss = 0;        // over all ranks; not a number where no term had weight
  std::int64_t units = 0;
  std::int64_t micro_batches = 0;       // of a rank, or of each of its virtual ranks; 0: its task made the step
  double flops = 0;                     // of the products that the model needed, forward and backward, over all ranks
  std::vector<NamedNumber> terms = {};  // those that have names, and what the task logs; means, likewise
  StepResult result = {};
  std::vector<ModelUpdate> updates = {};  // those of a model in order
};

class RunSteps {
 public:
  struct Turn {
    std::optional<StepOutcome> outcome;
    StepFlags flags;              // raised by any rank
    std::vector<SaveNote> saves;  // of all ranks; none where they exchanged no notes
    int failed_rank = -1;
  };

  virtual ~RunSteps() = default;
  virtual std::int64_t step() const = 0;
  // For the steps from now on: curves of the first model that is trained, and a factor on all rates.
  virtual void set_rates(const StepCurves& curves, double factor) = 0;
  // Does a step. On the processor it returns that step's outcome; on a device, which may still work on the step, that
  // of the step before. A loss that is not finite is an Error of kind numeric, on all ranks.
  virtual Turn next(StepFlags flags = {}) = 0;
  // The outcome of the step under way, if any.
  virtual Turn finish(StepFlags flags = {}) = 0;
  // Exchanges flags with all ranks outside of a step.
  virtual Turn ask(StepFlags flags) = 0;
  // Why this rank, of several, does not have the batches of the next step; then its flag `failed` was raised. Else
  // empty.
  virtual const std::string& data_failure() const = 0;
  // Milliseconds in which this thread has waited for other ranks, but for what engines count (TaskStacks::waited_ms).
  virtual double waited_ms() const = 0;

 protected:
  // What all ranks have told, without an outcome.
  static Turn turn_of(const std::vector<StepNote>& all);
  // Of a rank, of so many, that has no step under way and asks nobody: one alone knows its own flags.
  static Turn turn_without_step(const StepFlags& flags, int ranks);
};

}  // namespace keel
