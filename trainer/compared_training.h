#pragma once
// One of several trainings that are compared: the steps of a run, without its folder, messages and checkpoints.

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/comm/link.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/progress.h"
#include "keel/trainer/skipped_steps.h"
#include "keel/trainer/task_stacks.h"
#include "keel/trainer/training_step.h"

namespace keel {

// The ranks that compared trainings use: the given ones, on a slower network and with a thread for communication where
// there is to be one. Collective.
class ComparedRanks {
 public:
  ComparedRanks(Communicator& given, const Network& network, const Config& config);
  Communicator& operator*() const { return *ranks_; }

 private:
  std::unique_ptr<Communicator> slow_, background_;
  Communicator* ranks_;
};

class ComparedTraining {
 public:
  // Collective. `compared` must be the same on all ranks, as the configuration; otherwise, or where the training does
  // not fit into memory, or cannot be made, an AgreedError.
  ComparedTraining(const Config& config, std::string_view compared, Communicator& ranks, const LogSink& log);

  // Before the first step.
  void begin() { stacks_->begin_with_weights(ranks_); }
  // As of RunSteps.
  RunSteps::Turn next() { return noted(steps_->next()); }
  RunSteps::Turn finish() { return noted(steps_->finish()); }
  std::int64_t step() const { return steps_->step(); }

  const Config& config() const { return config_; }
  Sharded& engine() { return stacks_->main().engine(); }
  bool has_validation() const { return !data_.validation.empty(); }
  // After `finish()`. The metrics of the run's evaluations, with the weights that those use. Collective.
  EvalReport evaluate();
  // Milliseconds that this rank has waited for others. What is still under way belongs to the step before.
  double waited_ms() const { return steps_->waited_ms() + stacks_->waited_ms(); }
  // Bytes that this rank has sent for parameters, gradients and steps; waits for weights that are being gathered.
  std::int64_t sent();
  // Those of them by which strategies of communication tell other groups something; waits for what is under way.
  // Collective.
  std::int64_t strategy_sent();
  // Bytes of parameters, gradients and optimizer state, before the first step.
  std::int64_t kept() const;
  RankPlan plan(std::int64_t micro_batches = 0) const { return stacks_->plan(micro_batches); }  // as plan_stacks()
  // After `finish()`. Collective.
  SkippedOfTraining skipped() const { return skipped_->of_all(ranks_); }
  // Of all weights, the same on every rank. Collective.
  std::uint64_t fingerprint();

 private:
  RunSteps::Turn noted(RunSteps::Turn turn);

  Config config_;
  Communicator& ranks_;
  std::optional<Context> context_;
  std::unique_ptr<TaskBase> task_;
  Data data_;
  std::optional<DeviceCommunicator> device_ranks_;
  std::optional<TaskStacks> stacks_;
  std::optional<TrainingSteps> steps_;
  std::optional<SkippedSteps> skipped_;
};

}  // namespace keel
