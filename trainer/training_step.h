#pragma once
// Training steps of one rank: micro-batches forward and backward, the optimizer, and the outcome over all ranks.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "keel/data/prefetch.h"
#include "keel/dist/checkpoint/async_save.h"
#include "keel/dist/comm/exchange.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/nn/module.h"
#include "keel/tasks/loss.h"
#include "keel/trainer/micro_step.h"

namespace keel {

// What the callbacks of a rank ask for (keel/trainer/loop_view.h).
struct LoopWishes {
  static constexpr double kNone = -1;
  bool stop = false, evaluate = false, save = false;
  bool failed = false;  // one has thrown
  double rate = kNone;  // factor on the learning rates
};
// What any of the ranks asks for. Factors that differ are an AgreedError that names the rank.
LoopWishes agreed_wishes(std::span<const LoopWishes> of_ranks);

// Is told of a step's parts as they are asked for.
class StepWatcher {
 public:
  virtual ~StepWatcher() = default;
  virtual void before_backward(std::int64_t micro_batch) = 0;
  virtual void after_backward(std::int64_t micro_batch) = 0;
  virtual void before_optimizer_step() = 0;
  virtual void after_optimizer_step() = 0;
};

// What a rank tells the others once a step.
struct StepFlags {
  bool stop = false;     // a signal asked for the end
  bool late = false;     // the time is over
  bool failed = false;   // this rank cannot go on
  bool save = false;     // a checkpoint is due
  SaveNote saving = {};  // where this rank's save stands
  double seconds = 0;    // of the run under its time limit, as the first rank's clock shows them
  LoopWishes wishes = {};
};

struct StepOutcome {
  std::int64_t step = 0;  // counted from 1
  double loss = 0;        // mean over the weights of all ranks
  std::int64_t units = 0;
  StepResult result;
};

class TrainingSteps {
 public:
  struct Parts {
    Module& model;
    LossFunction loss;
    Sharded& engine;
    Communicator& ranks;  // another communicator than the engine's
    std::shared_ptr<const BatchSource> loader;
    std::vector<Rows> micro_batches;  // of this rank
    StepCurves curves;
    std::int64_t last_step = 0;  // whose batches are the last that are needed
    std::uint64_t seed = 0;      // of dropout
    bool cuda_graph = false;
    std::string unit = std::string(kRowWeight);  // the weight that StepOutcome::units counts
    StepWatcher* watcher = nullptr;              // outlives this; null: nobody is told
  };
  struct Turn {
    std::optional<StepOutcome> outcome;
    StepFlags flags;              // raised by any rank
    std::vector<SaveNote> saves;  // of all ranks; none where they exchanged no notes
    int failed_rank = -1;
  };

  // Goes on after `step` steps.
  TrainingSteps(const Parts& parts, std::int64_t step);

  std::int64_t step() const { return step_; }
  // For the steps from now on.
  void set_curves(const StepCurves& curves) { parts_.curves = curves; }
  // Does a step. On the processor it returns that step's outcome; on a device, which still works on the step, that of
  // the step before. A loss that is not finite is an Error of kind numeric, on all ranks, that names the first bad
  // tensor.
  Turn next(StepFlags flags = {});
  // The outcome of the step under way, if any.
  Turn finish(StepFlags flags = {});
  // Exchanges flags with all ranks outside of a step.
  Turn ask(StepFlags flags);
  // Why this rank, of several, does not have the batches of the next step; then its flag `failed` was raised. Else
  // empty.
  const std::string& data_failure() const { return data_failure_; }
  // Milliseconds in which this thread has waited for other ranks, the engine's waiting included.
  double waited_ms() const { return parts_.engine.waited_ms() + waited_ms_; }

 private:
  // A step whose numbers may still be on their way.
  struct Pending {
    struct Micro {
      Batch batch;
      StepLoss loss;
    };
    std::int64_t step = 0;
    RandomStream random;
    std::vector<Micro> micro_batches;
    PendingStep result;
  };
  // What a rank tells the others at the end of a step.
  struct Note {
    double loss_sum = 0;  // over the weight
    double weight = 0;
    double units = 0;
    std::int64_t bad_micro = -1;  // the first micro-batch whose loss is not finite
    double bad_loss = 0;
    bool stop = false, late = false, failed = false, save = false;
    double seconds = 0;
    SaveNote saving = {};
    LoopWishes wishes = {};
  };

  Batch take(Rows range);
  // The flags, with `failed` where the batches of the next step do not come.
  StepFlags look_ahead(StepFlags flags);
  void run_micro_batch(std::size_t index, const Batch& batch, Pending& pending);
  template <class F>
  void tell(const F& f) const;
  PendingStep step_with_closure(Pending& pending);
  Forward pass_of(const Pending& pending, const Batch& batch) const;
  Note note_of(const Pending& pending, StepFlags flags) const;
  // What the others have told.
  std::vector<Note> hear(GatheringOf<Note>& told);
  Turn conclude(const std::optional<Pending>& under_way, StepFlags flags);
  Turn conclude(const Pending& pending, GatheringOf<Note>& told);
  static Turn turn_of(const std::vector<Note>& all);
  void check_loss(const Pending& pending, std::size_t micro_batch);
  void check_count(const Loss& loss, const Batch& batch) const;
  void check_notes(const Pending& pending, const std::vector<Note>& all);
  [[noreturn]] void fail_on(const Pending& pending, std::size_t micro_batch, int rank, double loss);

  Parts parts_;
  const Context& context_;
  std::int64_t step_, first_step_;
  std::optional<GraphedMicroStep> graph_;
  std::optional<Pending> pending_;
  double waited_ms_ = 0;
  std::string data_failure_;
  Batch stand_in_;            // computed where a micro-batch is empty; it has no weight
  std::vector<Rows> ranges_;  // of the batches of a step
  PrefetchLoader batches_;
};

}  // namespace keel
