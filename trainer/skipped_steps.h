#pragma once
// Steps that were not taken, because a gradient is not finite or nothing in them counts: what a run says of them, and
// when they end it.

#include <cstdint>
#include <optional>
#include <string>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/trainer/skipped_of_training.h"

namespace keel {

class SkippedSteps {
 public:
  // `taken`: the steps that the run took before it was resumed. `model`: whose updates these are; empty: the only one.
  SkippedSteps(const LossScaling& scaling, std::int64_t taken, const std::string& model = {})
      : whose_(model.empty() ? "" : concat("'", model, "': ")), scaling_(scaling), taken_(taken) {}

  // Whether the loss scale finds its place by skipping steps, which is no bad sign then.
  bool are_expected() const { return scaling_.backoff < 1; }
  // "step 3 was skipped: the gradient of wte.weight is not finite; the loss scale is now 512".
  std::string message(const StepResult& result, std::int64_t step) const;
  // Without an end: only notes it.
  void note(const StepResult& result);
  // An AgreedError after ten skipped steps in a row whose loss scale could not fall. Steps in which nothing counts say
  // nothing of that.
  void count(const StepResult& result, std::int64_t step);
  // An AgreedError where every step was skipped: the weights that a run began with are no result.
  void check_some_step_was_taken() const;
  // The same where groups of ranks skip steps by themselves: where no group has taken any. Collective.
  void check_some_step_was_taken(Communicator& ranks) const;
  // What all ranks have noted. Collective.
  SkippedOfTraining of_all(Communicator& ranks) const;

 private:
  std::string whose_;  // what complaints begin with
  LossScaling scaling_;
  std::int64_t taken_, skipped_ = 0;
  int in_a_row_ = 0;
  std::optional<StepResult> last_;  // that was skipped
};

}  // namespace keel
