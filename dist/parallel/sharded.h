#pragma once
// Data parallel training with ZeRO stages 0 to 3: one engine, and a table that says what is sharded.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/parallel/engine.h"
#include "keel/dist/parallel/shard_unit.h"
#include "keel/dist/parallel/sharding.h"
#include "keel/kernels/step_state.h"
#include "keel/nn/module.h"
#include "keel/optim/optimizer.h"

namespace keel {

struct ShardedOptions {
  PrecisionPolicy policy = {};
  std::optional<DType> wire = {};  // of gradients between ranks; the parameters' dtype unless given
  std::uint64_t seed = 1;          // of the initial weights
  std::int64_t micro_batches = 1;  // calls of backward() between two steps
  double clip = 0;                 // longest mean gradient, by its 2-norm; 0: not clipped
  GroupRule groups = decay_matrices_only;
  ShardingOptions sharding = {};
  LossScaling scaling = {};
  double loss_scale = 1;  // of the first step
};

// What backward() should know of a loss.
struct BackwardOptions {
  std::int64_t tokens = 1;  // that the loss is a mean over
  bool last = true;         // of the micro-batches of this step
};

// Owns a model's memory on this rank. Every rank makes one of the same model, and calls the same functions with its own
// part of the data. The sum over ranks of each gradient is taken in fp32 in the order of ranks and rounded once to the
// wire's dtype, so that all stages, buckets and schedules give the same bits.
class Sharded {
 public:
  // Model and communicator must outlive it. Throws an Error that names the first difference where ranks have different
  // models or options.
  Sharded(Module& model, const Context& context, Communicator& communicator, std::unique_ptr<const Optimizer> optimizer,
          const ShardedOptions& options = {});
  ~Sharded();
  Sharded(const Sharded&) = delete;
  Sharded& operator=(const Sharded&) = delete;

  // Adds the gradient of `loss` to that of the step; with the last one, or with each (see ShardingOptions), gradients
  // are summed over the ranks while backward goes on.
  void backward(const Variable& loss, const BackwardOptions& options = {});
  // Divides by the tokens of all ranks, clips, updates, and forgets the gradients; skipped by all ranks where one
  // gradient of any rank is not finite.
  StepResult step(double lr);

  std::span<const std::unique_ptr<ShardUnit>> units() const { return units_; }
  // The units of each bucket in the order in which they are sent.
  const std::vector<std::vector<std::size_t>>& buckets() const { return buckets_; }
  // Bytes of steps' flags, norms and tokens, apart from those of the communicator.
  Traffic control_traffic() const { return control_->traffic(); }
  StepState state() const { return kernels::read_step_state(state_); }
  std::span<const ParameterRange> ranges() const { return ranges_; }

 private:
  class UnitObserver;

  void check_same_everywhere(Module& model) const;
  void make_units(Module& model);
  void make_state();
  void make_buckets();
  void watch_leaves();
  void watch_modules(Module& model);

  void forward_begins(std::size_t unit);
  void forward_ends(std::size_t unit);
  void gradient_begins(std::size_t unit);
  void gradient_ready(std::size_t unit);
  void send_ready_buckets(bool all);
  void finish_oldest();
  void check_all_used() const;
  std::string parameter_at(std::int64_t element) const;

  Context context_;
  Communicator& communicator_;
  std::unique_ptr<Communicator> control_;  // the same ranks, for what is no parameter and no gradient
  std::unique_ptr<const Optimizer> optimizer_;
  ShardedOptions options_;
  std::vector<std::unique_ptr<ShardUnit>> units_;
  std::vector<std::vector<Tensor>> optimizer_state_;  // by unit
  std::vector<ParameterRange> ranges_;
  Tensor state_, partials_;

  std::vector<std::vector<std::size_t>> buckets_;
  std::vector<std::pair<Module*, std::shared_ptr<ForwardObserver>>> observers_;

  // Stage 3: the units in the order of the first forward pass, and the place of each there, or -1.
  std::vector<std::size_t> forward_order_;
  std::vector<std::int64_t> forward_place_;

  // Of the backward pass that is running.
  bool in_backward_ = false, reducing_ = false;
  std::vector<std::size_t> leaves_left_;  // by unit
  std::size_t next_bucket_ = 0;
  std::deque<std::size_t> sent_;  // units whose sums are under way
  bool last_seen_ = false;
};

}  // namespace keel
