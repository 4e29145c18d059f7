#pragma once
// The stacks of one rank's run, from the choice of numbers to what they begin with.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "keel/trainer/assembly.h"
#include "keel/trainer/checkpoint.h"
#include "keel/trainer/logged.h"
#include "keel/trainer/progress.h"
#include "keel/trainer/run_folder.h"
#include "keel/trainer/run_trace.h"
#include "keel/trainer/task_stacks.h"

namespace keel {

class RunStacks {
 public:
  struct Site {
    Config& config;  // gets the precision that is decided
    const Context& context;
    TaskBase& task;
    Communicator& ranks;
    TrainObserver& observer;
    std::int64_t micro_batches;            // of a step, at most
    SurvivingGroups* survivors = nullptr;  // null: all groups end together
  };
  // Decides the precision, checks that all models fit into memory together, and makes their stacks. All of the site
  // outlives this. Every rank calls it. Says what is to be told of stacks. `resume`: what the run goes on from.
  RunStacks(const Site& site, const std::optional<Checkpoint>& resume);

  // The first that is trained, and its engine.
  Stack& main() { return stacks_->main(); }
  Sharded& engine() { return main().engine(); }
  RunTrace& trace() { return *trace_; }
  // Of the frozen models, by name.
  const std::map<std::string, std::string>& fingerprints() const { return stacks_->fingerprints(); }
  // Gives what is trained the numbers of `resume`, as load_beginning(), or, where there is none, those that a model of
  // the task names. An AgreedError where a frozen model has other weights than then.
  void load(const RunFolder& folder, const Data& data, std::optional<Checkpoint>& resume);
  std::span<const std::unique_ptr<Stack>> trained() const { return stacks_->trained(); }
  std::vector<SavedBeside> others() const { return stacks_->others(); }
  // For a run that fails: forgets all gradients, and returns whether all weights are finite, on every rank. Every rank
  // calls it.
  bool forget_gradients();
  // Once, after the step with which the last engine has chosen its sizes (sharding.bucket=auto): tells them, and
  // returns what they are as values of a record. Otherwise nothing. All ranks get something after the same step.
  std::vector<Logged> take_tuned();
  // See TaskStacks.
  LossFunction loss() { return stacks_->loss(site_.task); }
  void release_frozen() { stacks_->release_frozen(); }
  double waited_ms() const { return stacks_->waited_ms(); }
  std::int64_t data_sent() const { return stacks_->data_sent(); }

 private:
  void tell_once(LogLevel level, const std::string& words);
  void check_fingerprints(const Checkpoint& resume);

  Site site_;
  StackModels models_;
  std::optional<DeviceCommunicator> device_ranks_;
  std::optional<RunTrace> trace_;
  std::optional<TaskStacks> stacks_;
  bool has_told_tuned_ = false;
};

}  // namespace keel
