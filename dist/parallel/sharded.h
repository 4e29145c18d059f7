#pragma once
// The engine: owns a model's memory and optimizer state on one rank, and turns losses into optimizer steps. One engine
// for a rank alone, data parallelism and the ZeRO stages: a table says what is sharded.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/parallel/buffer_updates.h"
#include "keel/dist/parallel/optimizer_memory.h"
#include "keel/dist/parallel/rank_groups.h"
#include "keel/dist/parallel/rank_sums.h"
#include "keel/dist/parallel/shard_unit.h"
#include "keel/dist/parallel/sharded_options.h"
#include "keel/dist/parallel/step_decision.h"
#include "keel/dist/parallel/step_tuning.h"
#include "keel/dist/parallel/step_values.h"
#include "keel/dist/parallel/unit_schedule.h"
#include "keel/kernels/step_state.h"
#include "keel/nn/module.h"
#include "keel/nn/tensor_parts.h"
#include "keel/optim/optimizer.h"

namespace keel {

class Sharded;

// The message of a backward pass where Sharded::trains() is false.
inline constexpr std::string_view kNothingToTrain = "the model has no parameters to train";

// A step that the device may still work on. The engine must outlive it.
class PendingStep {
 public:
  PendingStep() = default;
  StepResult get() const;  // waits

 private:
  friend class Sharded;
  PendingStep(const Sharded& engine, const Tensor& state, int evaluations = 1)
      : engine_(&engine), state_(state), evaluations_(evaluations) {}
  const Sharded* engine_ = nullptr;
  HostCopy state_;
  int evaluations_ = 1;
};

// Owns a model's memory on this rank. Every rank makes one of the same model, and calls the same functions with its own
// part of the data. The sum over ranks of each gradient is taken in fp32 in the order of ranks and rounded once to the
// wire dtype, so that all stages, buckets and schedules give the same bits.
//
// Several engines may share a communicator, and a loss may go through the models of several (a generator's goes through
// the discriminator). Parameters get a gradient from backward() of their own engine alone: in every other backward pass
// they are constants, whose weights are gathered and released as in their own. Nothing of another engine changes: not
// its gradient, norm, weight or look-ups. That pass does not go through what depends on constants alone, and does not
// consume it. Models that one loss shall train together belong to one engine.
class Sharded {
 public:
  // Gives the model its memory and initial numbers. Model and communicator must outlive the engine. Throws an Error
  // that names the first difference where ranks have different models or options.
  Sharded(Module& model, const Context& context, Communicator& communicator, std::unique_ptr<const Optimizer> optimizer,
          const ShardedOptions& options = {});
  // For one rank alone.
  Sharded(Module& model, const Context& context, std::unique_ptr<const Optimizer> optimizer,
          const ShardedOptions& options = {});
  ~Sharded();
  Sharded(const Sharded&) = delete;
  Sharded& operator=(const Sharded&) = delete;

  // With several virtual ranks on a rank (ShardingOptions::virtual_ranks) it does for one after the other what a rank
  // of its own would do: their micro-batches, the last of each with `last`.
  //
  // Adds the gradient of `loss` to that of the step. Until step() gradients are sums over the weight, so that
  // micro-batches of different sizes weigh as they should. Gradients are summed over the ranks while backward goes on,
  // with the last micro-batch or with each (see ShardingOptions). A rank without weight takes part all the same; its
  // look-ups do not count as used rows. A loss that depends on no parameter of this engine is an Error.
  void backward(const Variable& loss, const BackwardOptions& options = {});
  // The same of a loss with several terms, which all ranks have in the same order, in one pass. The sum over terms of
  // factor * gradient is added; with one term, whose factor is the weight, that is the above. A pass whose factors are
  // all 0 only takes part. step() divides by the sum of `options.weight` alone.
  void backward(std::span<const WeightedLoss> terms, const BackwardOptions& options = {});
  // Counts a backward pass that happens outside of the engine, on a rank alone: one that was recorded as a graph.
  void count_backward(const BackwardOptions& options);
  // The weight of this rank's losses since the last step.
  double weight() const { return weight_; }
  // Divides by the weight of all ranks, clips, updates, and forgets the gradients. All ranks skip the step where a
  // gradient of any rank is not finite, or where no rank has any weight. Nothing waits for the device before somebody
  // asks for the result.
  PendingStep step(double lr);
  // The same with learning rates and momenta from curves over the taken steps; skipped steps do not count.
  PendingStep step(const StepCurves& curves);
  // A step of an optimizer that needs a closure. It evaluates the closure one or several times, at weights that the
  // optimizer chooses and that all ranks have by then. Dot products are added in fp64 in the order of ranks, so that
  // all stages give the same bits. The result is that of the first evaluation. Waits for the device. A mean loss or a
  // gradient that is not finite is an AgreedError of kind numeric; the weights are then as before the move that led
  // there.
  PendingStep step(const Closure& closure, double lr);
  PendingStep step(const Closure& closure, const StepCurves& curves);
  // Gives back whole weights that forward passes have gathered and keep until a backward pass (those of the root). For
  // models that only answer; whoever reads weights later gathers them again.
  void release_weights();
  // Forgets the gradients that have been added since the last step, and what buffers have observed.
  void zero_grad();
  // Says what collectives are about, for messages of failures: "step 57".
  void set_activity(const std::string& activity);

  const Context& context() const { return context_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  const ShardedOptions& options() const { return options_; }
  // Whether the model has parameters that are trained. One without has forward passes alone.
  bool trains() const;
  // Whether steps change buffers of the model (keel/nn/buffer.h).
  bool changes_buffers() const { return buffer_updates_->changes(); }
  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  // The virtual ranks that this rank computes one after the other; 1 without.
  int virtual_ranks() const { return groups_->place().virtual_ranks; }
  std::span<const std::unique_ptr<ShardUnit>> units() const { return units_; }
  // The units of each bucket in the order in which they are sent.
  const std::vector<std::vector<std::size_t>>& buckets() const { return schedule_.buckets(); }
  // What is measured where sharding.bucket was kAutomatic; empty where there is nothing to choose. options() has what
  // is in use.
  std::span<const TunedAxis> tuned() const { return tuning_ ? tuning_->axes() : std::span<const TunedAxis>(); }
  bool is_tuning() const { return tuning_ && !tuning_->is_over(); }
  std::span<const ParameterRange> ranges() const { return memory_->ranges(); }
  // What this rank has sent for parameters and gradients, and for flags, norms and weights of steps.
  Traffic data_traffic() const { return groups_->traffic(); }
  // The part of data_traffic() by which the strategy of communication has told other groups something.
  Traffic strategy_traffic() const { return strategy_ ? groups_->axes().replicas->traffic() : Traffic{}; }
  Traffic control_traffic() const { return control_->traffic(); }
  // Milliseconds in which the processor has waited for the collectives of parameters, gradients and steps.
  double waited_ms() const { return times_.waited_ms; }
  // Milliseconds in which payloads of gradients, and sums of payloads, were made. On a device they are measured by its
  // own clock, and count once they have passed.
  double codec_ms() const { return times_.codec.milliseconds(); }
  // Bytes that were copied between the device and the processor for what lies there.
  std::int64_t offload_bytes() const { return memory_->offload_bytes() + (pager_ ? pager_->moved_bytes() : 0); }
  // Bytes of what lies in files that were read and written, and what the file takes of the disk.
  PageTraffic file_traffic() const { return pager_ ? pager_->file_traffic() : PageTraffic{}; }
  std::int64_t file_bytes() const { return pager_ ? pager_->file_bytes() : 0; }
  // Groups of ranks that have weights of their own, since a strategy of communication seldom brings them together: how
  // many there are, and which of them this rank's is; 1 and 0 otherwise.
  int groups() const { return strategy_ ? groups_->count() : 1; }
  int group() const { return strategy_ ? groups_->number() : 0; }
  bool has_strategy() const { return strategy_ != nullptr; }
  // Whether this rank's parts are needed to have all of its group's.
  bool holds_group_parts() const;
  // Waits for what the strategy has under way. Every rank calls it, between steps.
  void settle_strategy() const;
  // Views of the strategy's tensors, "<state>.<parameter>", and of its "steps"; or of those tensors alone of which each
  // group has its own. Any rank may call it once all have settled.
  TensorParts strategy_state(bool of_group = false) const;
  void load_strategy_state(const TensorParts& state);
  // For whoever has written numbers into these views. Every rank calls it.
  void adopt_strategy_state();
  // "steps": the counts of steps and the loss scale of this rank's group, which has its own; and for whoever has
  // written numbers into that view.
  TensorParts group_steps() const;
  void adopt_group_steps();
  // For whoever has loaded weights: they are where all groups begin. Every rank calls it.
  void restart_groups();
  // Whether this rank's parts are needed to have all: others may hold the same.
  bool holds_parts() const;

  // Counts of steps and loss scale. Waits for the device. An Error where ranks have failed: what an aborted collective
  // left on the device is no state.
  StepState state() const { return decision_->read(); }
  std::int64_t steps_taken() const { return state().steps; }
  // Whether the latest step was taken: i64 (1), 1 or 0, a view of what the next step writes. Waits for nothing.
  Tensor taken() const { return kernels::taken_of(decision_->state()); }

  // Views of what this rank owns: the weights by parameter name (the masters where there are any), and the optimizer's
  // state as "<state>.<parameter>". Buffers follow the weights, on the first rank. What other ranks own has no numbers.
  // Every rank has the shared numbers, as "shared.<name>". An Error where an update from files ended in the middle.
  TensorParts weights() const;
  TensorParts optimizer_state() const;
  // Every rank calls these. Every name, shape and number that this rank owns must be there; otherwise an Error lists
  // the differences, and nothing is changed.
  void load_weights(const TensorParts& weights);
  // Takes counts of steps and loss scale from `steps`.
  void load_optimizer_state(const TensorParts& state, const StepState& steps);
  // Where the optimizer's weights are averages (OptimizerRequirements::averages): the model computes with these, as
  // weights() has them, until it is called with false; before and afterwards with what is trained at. A step is an
  // Error in between. With other optimizers it does nothing. Every rank calls it.
  void use_averages(bool use);
  // For whoever has written numbers into the views of weights() himself: the values that are computed with and
  // the other ranks get them. Every rank calls it.
  void adopt_weights();
  // The counts of steps and loss scale of `steps`.
  void adopt_steps(const StepState& steps);
  // Nothing that a step changes for good is changed before the event, as somebody still reads it.
  void hold_updates(const Event& until) { held_ = until; }
  // What waits for that event: steps and everything that loads numbers do; so must whoever writes into views.
  void wait_until_released() { context_.stream().wait(std::exchange(held_, Event())); }
  // Views of the residuals of this rank's gradients, "residual.<parameter>", and of PowerSGD's factors,
  // "factor.<parameter>", which are the same on every rank. Whole tensors, but where groups of ranks send codes of
  // their sums to each other: then the ranks of a group have them together. None without error feedback.
  TensorParts compression_state() const;
  // Which of so many whole residuals this rank has, or its part of.
  struct ResidualPlace {
    int number = 0, count = 1;
  };
  ResidualPlace residual_place() const;
  // Takes over the states of other ranks: residuals are added up. A factor that is missing or has another shape begins
  // anew; a parameter that the model does not have is an Error.
  void load_compression_state(std::span<const TensorParts> states);

 private:
  class UnitObserver;
  class Evaluations;

  Sharded(Module& model, const Context& context, std::unique_ptr<Communicator> own, Communicator* communicator,
          std::unique_ptr<const Optimizer> optimizer, const ShardedOptions& options);
  void begin_strategy();
  bool scales_loss() const { return options_.loss_scale != 1 || options_.scaling.growth != 1; }
  void make_schedule(Module& model);
  void watch_leaves();
  void tune();
  void use_tuned();
  Communicator& tuned_ranks() { return options_.survivors != nullptr ? groups_->axes().shards : communicator_; }

  void perform(const UnitSchedule::Actions& actions);
  void pass_begins();
  void forward_begins(std::size_t module);
  void forward_ends(std::size_t module) noexcept;
  void end_virtual_rank();
  bool touched(std::size_t unit);
  void make_pager(std::span<const FlatBuffer> layout);
  void agree_on_files();
  void check_updated() const;
  void share_by_strategy();
  void put_away(std::size_t unit);
  void share_updates(std::size_t unit);
  void gradient_ready(std::size_t unit);
  void constant_passed(std::size_t unit, BackwardPass& pass);
  void check_all_used() const;
  void warn_of_rounded_sums();

  friend class PendingStep;
  PendingStep step(StepArgs args);
  PendingStep step(const Closure& closure, const StepArgs& args);
  void decide(StepArgs args);
  void forget_gradients();
  void clip_values();
  void update_buffers();
  std::string parameter_at(std::int64_t element) const;

  Context context_;
  EngineTimes times_;
  std::unique_ptr<Communicator> own_communicator_;  // of a rank alone
  Communicator& communicator_;
  std::unique_ptr<Communicator> control_;  // the same ranks, for all but parameters and gradients
  std::optional<RankGroups> groups_;
  // Those who decide a step together, where that is not control_.
  std::unique_ptr<Communicator> group_control_;
  std::unique_ptr<CommunicationStrategy> strategy_;  // null: gradients of all ranks are summed
  Tensor strategy_step_count_;                       // f64 (1), on the processor
  Tensor group_steps_;                               // f64 (5), on the processor
  std::vector<std::size_t> strategy_units_;          // by unit: its number among those that are trained
  std::unique_ptr<const Optimizer> optimizer_;
  ShardedOptions options_;
  bool offloads_;
  bool uses_averages_ = false;
  std::optional<Pager> pager_;  // of what lies in files
  bool is_half_updated_ = false;
  std::vector<std::unique_ptr<ShardUnit>> units_;
  std::optional<OptimizerMemory> memory_;
  std::optional<StepDecision> decision_;
  // For an optimizer that needs a closure: sums over all elements, and over the losses of all ranks.
  std::optional<RankSums> dots_, losses_;
  std::optional<BufferUpdates> buffer_updates_;
  double gradient_scale_ = 1;  // of the backward pass that is running, where gradients are compressed

  UnitSchedule schedule_;
  std::optional<StepTuning> tuning_;  // where there is something to measure
  std::vector<std::pair<Module*, std::shared_ptr<ForwardObserver>>> observers_;
  std::uint64_t visit_ = 0;  // the id of the last backward pass in which the parameters were constants
  // State of the step under way.
  double weight_ = 0;
  std::vector<double> weights_;   // by virtual rank
  std::size_t virtual_rank_ = 0;  // of this rank: the one that computes
  bool last_seen_ = false;
  bool has_warned_ = false;  // of gradients that are added up in 16 bits
  Event held_;
};

}  // namespace keel
