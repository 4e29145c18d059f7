#pragma once
// What becomes of a run's steps once they have come out: records and counts, and what the ranks do where one of them
// cannot go on.

#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "keel/trainer/checkpoint.h"
#include "keel/trainer/run_callbacks.h"
#include "keel/trainer/run_report.h"
#include "keel/trainer/run_stacks.h"
#include "keel/trainer/run_steps.h"
#include "keel/trainer/skipped_steps.h"

namespace keel {

class RunOutcomes {
 public:
  struct Site {
    Communicator& ranks;
    TrainObserver& observer;
    RunCallbacks& callbacks;
    RunReport& report;
    TrainState& state;  // whose tokens and taken steps are counted here
    RunStacks& stacks;
  };
  // All outlive this.
  explicit RunOutcomes(const Site& site);

  // Reports the outcome, if there is one. A rank whose report fails (a full disk, an observer that throws) tells the
  // others with the next step, so that all can save. Where a rank has told that it cannot go on, all throw why.
  void handle(const RunSteps::Turn& turn, const RunSteps& steps);
  // Whether this rank cannot go on, and whether all ranks know of it.
  bool has_failed() const { return failure_ != nullptr || !skips_.empty() || !site_.callbacks.failure().empty(); }
  bool failure_is_known() const { return failure_is_known_; }
  // Reports an outcome, and lets failures through.
  void report(const StepOutcome& outcome, const RunSteps& steps);

  // Steps taken. Those whose outcome is not known yet count as taken.
  std::int64_t taken() const { return site_.state.optimizer.steps + site_.state.step - known_step_; }
  double loss() const { return loss_; }  // of the last step that has come out
  // An AgreedError where every update of a model was skipped, by all groups of ranks that take steps by themselves.
  void check_some_step_was_taken() const;
  // Milliseconds in which this rank has waited for others.
  double waited_ms(const RunSteps& steps) const { return steps.waited_ms() + site_.stacks.waited_ms(); }

 private:
  void count(const ModelUpdate& update);
  [[noreturn]] void fail_together(int rank, const RunSteps& steps);

  Site site_;
  std::map<std::string, SkippedSteps> skipped_;  // by model
  std::int64_t known_step_;     // whose outcome is known; site.state.optimizer counts the steps taken up to it
  std::exception_ptr failure_;  // of a report
  bool has_groups_ = false;     // that skip steps by themselves
  std::string skips_;           // why this rank's group cannot go on
  bool failure_is_known_ = false;
  double loss_ = 0;
  std::vector<std::pair<std::string, double>> logged_;  // by callbacks, since the last record
};

}  // namespace keel
