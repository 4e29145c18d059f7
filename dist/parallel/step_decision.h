#pragma once
// What all ranks know of a step's gradient, and what follows for the step: its norm, whether it is taken, its learning
// rate, and the loss scale of the next.

#include <memory>
#include <span>
#include <vector>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/parallel/shard_unit.h"
#include "keel/kernels/step_state.h"

namespace keel {

class StepDecision {
 public:
  // `ranks`: all of them; it must outlive this.
  StepDecision(Communicator& ranks, const EngineSite& site);

  // Decides the step of the gradients of these units, whose losses have these weights on this rank's virtual ranks.
  // `counts`: this rank's shards count; others may have the same. Every rank calls it; it waits for no device. What
  // virtual ranks know is added in their order, whoever computes them.
  void decide(std::span<const std::unique_ptr<ShardUnit>> units, std::span<const double> weights, bool counts,
              StepArgs args);

  // The state of keel/kernels/step_state.h.
  const Tensor& state() const { return state_; }
  // Waits for the device. An Error where ranks have failed: what an aborted collective left on the device is no state.
  StepState read() const;
  void write(const StepState& state) { state_.copy_from_host(&state); }
  // Takes over counts of steps and loss scale.
  void adopt(const StepState& steps);

 private:
  void gather(StepArgs& args);

  Communicator& ranks_;
  EngineTimes& times_;
  double clip_;
  LossScaling scaling_;
  Tensor state_, partials_;
  // Where a rank has several virtual ones: states of which the partials alone are used, and what they begin with.
  std::vector<Tensor> virtual_states_;
  Tensor blank_;
};

}  // namespace keel
