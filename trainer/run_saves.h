#pragma once
// What a run saves, and when it is told to: what callbacks keep goes into each checkpoint, and the folder is made again
// where somebody has removed it.

#include "keel/trainer/run_checkpoints.h"
#include "keel/trainer/run_files.h"
#include "keel/trainer/run_outcomes.h"
#include "keel/trainer/run_stacks.h"
#include "keel/trainer/run_steps.h"

namespace keel {

class RunSaves {
 public:
  struct Site {
    Communicator& ranks;
    TrainObserver& observer;
    RunFiles& files;  // of the first rank
    RunCallbacks& callbacks;
    RunCheckpoints& checkpoints;
    RunStacks& stacks;
    TrainState& state;  // which gets what callbacks keep
  };
  // All outlive this.
  explicit RunSaves(const Site& site) : site_(site) {}

  // Every rank calls these. Makes the folder again where it is gone.
  void keep_folder();
  // A checkpoint of state.step: RunCheckpoints::try_to_save().
  void save();
  // A copy in the memory of hosts.
  void copy();
  // For the end of a session.
  void save_the_last();
  // For the end by a failure that all ranks know of: reports the step under way, and saves as far as the weights are
  // worth it. That it could not be saved is told to the observer.
  void save_after_failure(RunSteps& steps, RunOutcomes& outcomes) noexcept;

 private:
  void remember_callbacks() { site_.state.callbacks = site_.callbacks.save(); }

  Site site_;
};

}  // namespace keel
