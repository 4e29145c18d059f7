#pragma once
// Training steps of one rank: micro-batches forward and backward, the optimizer, and the outcome over all ranks.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "keel/dist/parallel/sharded.h"
#include "keel/nn/module.h"
#include "keel/runtime/out_of_memory.h"
#include "keel/tasks/loss.h"
#include "keel/trainer/assembly.h"
#include "keel/trainer/micro_step.h"
#include "keel/trainer/run_steps.h"
#include "keel/trainer/run_trace.h"
#include "keel/trainer/step_loader.h"

namespace keel {

class TrainingSteps final : public RunSteps {
 public:
  struct Parts {
    Module& model;
    LossFunction loss;
    Sharded& engine;
    Communicator& ranks;  // another communicator than the engine's
    std::shared_ptr<const BatchSource> loader;
    std::int64_t micro = 1;  // rows of a micro-batch, at most
    StepCurves curves;
    std::int64_t last_step = 0;  // whose batches are the last that are needed
    std::uint64_t seed = 0;      // of dropout
    bool cuda_graph = false;
    int workers = 1;                             // threads that load batches
    std::string unit = std::string(kRowWeight);  // the weight that StepOutcome::units counts
    bool safe = false;                           // what finds no memory is tried again, on a rank alone
    StepWatcher* watcher = nullptr;              // outlives this; null: nobody is told
    RunTrace* trace = nullptr;                   // likewise
  };

  // Goes on after `step` steps. Steps may have different numbers of rows, and fewer than there are ranks: a micro-batch
  // without rows is computed with the step's first row, which counts nothing. They may not need more micro-batches than
  // the engine was made for.
  TrainingSteps(const Parts& parts, std::int64_t step);

  std::int64_t step() const override { return step_; }
  void set_rates(const StepCurves& curves, double factor) override { parts_.curves = scaled(curves, factor); }
  // A loss that is not finite names the first bad tensor.
  Turn next(StepFlags flags = {}) override;
  Turn finish(StepFlags flags = {}) override;
  Turn ask(StepFlags flags) override;
  const std::string& data_failure() const override { return data_failure_; }
  double waited_ms() const override { return waited_ms_; }

 private:
  // A step whose numbers may still be on their way.
  struct Pending {
    struct Micro {
      Batch batch;
      StepLoss loss;
    };
    std::int64_t step = 0;
    RandomStream random;
    std::vector<Micro> micro_batches = {};
    WeightTotals totals = {};
    std::string terms = {};  // of its losses
    double flops = 0;
    PendingStep result = {};
  };

  void begin_micro_batches();
  // Forward and backward of the step. Where a rank alone finds no memory, again, and then in ever smaller
  // micro-batches.
  void run_micro_batches(Pending& pending);
  // Makes ready for another try, in smaller micro-batches unless it is the first; false: there is none to be had.
  bool try_again(std::int64_t step, int tries, const OutOfMemory& error);
  bool may_divide() const;
  void load_from(std::int64_t step);
  // Takes the batches of a step that has to know them all before it begins, and begins to add up their weights.
  void take_all();
  Batch next_batch(std::size_t index);
  // The flags, with `failed` where the batches of the next step do not come.
  StepFlags look_ahead(StepFlags flags);
  void run_micro_batch(std::size_t index, const Batch& batch, Pending& pending);
  void compute(std::size_t index, const Batch& batch, Pending& pending);
  // What the step's losses have in common, and what their weights come to. Collective.
  void agree_on_terms(const Loss& loss, Pending& pending);
  void begin_totals();
  template <class F>
  void tell(const F& f) const {
    if (parts_.watcher != nullptr) f(*parts_.watcher);
  }
  PendingStep step_with_closure(Pending& pending);
  Forward pass_of(const Pending& pending, const Batch& batch) const;
  StepNote note_of(const Pending& pending, const StepFlags& flags) const;
  // Of each virtual rank of this one.
  std::vector<double> sums_of(const Pending& pending) const;
  // What all ranks tell.
  StepNotes gather(const StepNote& note, std::span<const double> sums);
  StepNotes hear(GatheringOfNotes& told);
  // Whether groups go on when others are lost, so that what is told is an attempt.
  bool survives() const { return parts_.engine.options().survivors != nullptr; }
  Turn conclude(const std::optional<Pending>& under_way, StepFlags flags);
  Turn conclude(const Pending& pending, const StepNotes& all);
  void check_loss(const Pending& pending, std::size_t micro_batch);
  void check_same_terms(std::size_t index, const Loss& loss, const Pending& pending) const;
  void check_notes(const Pending& pending, const std::vector<StepNote>& all);
  [[noreturn]] void fail_on(const Pending& pending, std::size_t micro_batch, int rank, const BadTerm& bad);

  Parts parts_;
  const Context& context_;
  std::int64_t step_, first_step_;
  int virtual_ranks_;                // of this rank
  std::int64_t most_micro_batches_;  // of a step
  std::optional<GraphedMicroStep> graph_;
  std::optional<Pending> pending_;
  double waited_ms_ = 0;
  std::string data_failure_;
  // Of the step at hand.
  std::int64_t micro_batches_ = 0;
  std::size_t of_virtual_rank() const { return static_cast<std::size_t>(micro_batches_ / virtual_ranks_); }
  std::vector<Batch> taken_;  // all of its batches, where they were taken at once
  // Of the losses of this session: what ranks have in common, and the weights of their terms.
  std::vector<TermKind> kinds_;
  std::vector<std::string> weights_;
  std::optional<GatheringOfSums> totals_;      // on their way
  std::optional<std::vector<double>> summed_;  // which have come, where groups may be lost
  std::optional<StepLoader> loader_;           // last: its threads use the others
};

}  // namespace keel
