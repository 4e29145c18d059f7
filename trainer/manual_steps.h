#pragma once
// Steps of a task that steers them itself (keel/tasks/manual_task.h).

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/dist/comm/agreement.h"
#include "keel/tasks/manual_task.h"
#include "keel/trainer/learning_rate.h"
#include "keel/trainer/run_steps.h"
#include "keel/trainer/run_trace.h"
#include "keel/trainer/stack.h"
#include "keel/trainer/step_loader.h"
#include "keel/trainer/step_loss.h"

namespace keel {

class ManualSteps final : public RunSteps, private ManualStep {
 public:
  struct Parts {
    ManualTask& task;
    std::span<const std::unique_ptr<Stack>> stacks;
    Communicator& ranks;  // another communicator than the engines'
    std::shared_ptr<const BatchSource> source;
    std::int64_t micro = 1;          // rows of a micro-batch, at most
    std::int64_t micro_batches = 1;  // of a step, at most
    std::int64_t last_step = 0;      // whose batches are the last that are needed
    std::uint64_t seed = 0;          // of dropout
    int workers = 1;                 // threads that load batches
    std::string unit = std::string(kRowWeight);
    double rate_factor = 1;
    std::function<void()> after_pass = {};  // of each micro-batch
    StepWatcher* watcher = nullptr;         // outlives this; null: nobody is told
    RunTrace* trace = nullptr;              // likewise
  };
  // Goes on after `step` steps.
  ManualSteps(const Parts& parts, std::int64_t step);

  std::int64_t step() const override { return step_; }
  void set_rates(const StepCurves& /*curves*/, double factor) override { parts_.rate_factor = factor; }
  // Waits for the device. The outcome's loss is the sum of the latest losses of the models that were trained in the
  // step; its result is the latest of the first model that was updated, taken unless every update was skipped. Terms
  // are NAME/TERM, NAME/loss, NAME/grad_norm, NAME/lr, by the latest update. Whatever it throws once the task's step is
  // over, step() counts that step.
  Turn next(StepFlags flags = {}) override;
  Turn finish(StepFlags flags = {}) override;
  Turn ask(StepFlags flags) override;
  const std::string& data_failure() const override { return data_failure_; }
  double waited_ms() const override { return waited_ms_; }

 private:
  // A call of accumulate() in this step.
  struct Pass {
    std::string name;  // of the model
    std::string description = {};
    std::vector<StepLoss> losses = {};  // by micro-batch
    std::vector<double> sums() const;
  };
  struct Update {
    PendingStep result;
    std::size_t pass;  // the last before it
  };
  struct Trained {
    Stack* stack;
    LearningRate rates;
    std::optional<std::int64_t> first_step = {};  // in which this session trained it
    std::vector<std::string> weights = {};        // of its losses, as the first of them said
    std::size_t accumulated = 0;                  // passes since the last update
    bool is_complete = false;                     // the last pass before an update was made
    std::size_t pass = 0;                         // the latest of this step, where any was accumulated
    std::vector<Update> updates = {};             // of this step
  };
  // A term that is not finite.
  struct Bad {
    std::int64_t pass = -1;  // of the step; -1: there is none
    BadTerm term = {};
  };

  std::int64_t number() const override { return step_ + 1; }
  std::span<const Batch> batches() const override { return batches_; }
  void accumulate(std::string_view stack, const LossFunction& loss, bool last) override;
  void update(std::string_view stack) override;
  void zero_grad(std::string_view stack) override;
  Outcome outcome(std::string_view stack) override;

  void begin_step();
  void end_step();
  // Tells all ranks what this one does next: an AgreedError where they do something else, or a term is not finite.
  void announce(std::string_view call, const Bad& bad);
  void announce(std::string_view call) { announce(call, Bad()); }
  // For what ranks have announced alike, which is wrong on all of them.
  template <class... Words>
  void check(bool holds, const Words&... words) const {
    if (!holds) throw AgreedError(concat("step ", number(), ": ", words...));
  }
  Trained& find(std::string_view name);
  void run_pass(Trained& trained, Pass& pass, const LossFunction& loss, bool last);
  WeightTotals agree_on(Trained& trained, Pass& pass, const Loss& loss);
  Bad first_bad(std::string_view stack) const;
  [[noreturn]] void fail_on(int rank, const Bad& bad) const;
  StepNote note_of(StepFlags flags) const;
  std::vector<double> sums() const;
  Turn conclude(GatheringOfNotes& told);
  StepOutcome outcome_of(std::span<const double> sums);

  Parts parts_;
  std::int64_t step_;
  std::vector<Trained> trained_;
  std::string data_failure_;
  double waited_ms_ = 0, flops_ = 0;
  // Of the step at hand.
  std::vector<Batch> batches_;
  std::vector<RandomStream> random_;  // of each micro-batch
  std::vector<Pass> passes_;
  std::string calls_;  // that were made, a line each
  StepLoader loader_;
};

}  // namespace keel
