#pragma once
// The stacks of all models of a task on one rank: those that are trained, and frozen ones with their weights.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "keel/dist/checkpoint/saved_beside.h"
#include "keel/trainer/config.h"
#include "keel/trainer/frozen_stack.h"
#include "keel/trainer/stack.h"
#include "keel/trainer/stack_models.h"

namespace keel {

class TaskStacks {
 public:
  // Gives all models their memory, in their order, and frozen ones their weights. `ranks`: those of site.ranks, by a
  // communicator of the processor. What the site names must outlive this. Collective. Errors: see Stack and
  // load_frozen().
  TaskStacks(const StackSite& site, const StackModels& models, Communicator& ranks);

  // Gives models that are trained the weights that they name (StackModel::weights), for a run that begins. `tell` hears
  // of them on the first rank. Collective; errors of load_named_weights().
  void begin_with_weights(Communicator& ranks, const std::function<void(const std::string& note)>& tell = {});

  // The first that is trained.
  Stack& main() { return *trained_.front(); }
  std::span<const std::unique_ptr<Stack>> trained() const { return trained_; }
  // All but the first, as a checkpoint keeps them beside it.
  std::vector<SavedBeside> others() const;
  // Which weights frozen models have, by name (WeightsSource::identity).
  const std::map<std::string, std::string>& fingerprints() const { return fingerprints_; }
  // The task's loss of a micro-batch, after which frozen models give back their whole weights. This must outlive it.
  LossFunction loss(TaskBase& task);
  // Gives back whole weights of frozen models that forward passes have gathered.
  void release_frozen();
  // Milliseconds in which the processor has waited for collectives of all models, frozen ones included.
  double waited_ms() const;
  // Bytes that this rank has sent for parameters, gradients and steps of all models.
  std::int64_t data_sent() const;
  // What this rank needs and sends, by formulas.
  RankPlan plan(std::int64_t micro_batches = 0) const;  // as plan_stacks()

 private:
  template <class F>
  void for_each_engine(const F& f) const {
    for (const auto& stack : trained_) f(std::as_const(*stack).engine());
    for (const auto& stack : frozen_) f(std::as_const(*stack).engine());
  }

  StackSite site_;
  StackModels models_;
  std::deque<Config> configs_;  // of those that are trained
  std::vector<std::unique_ptr<Stack>> trained_;
  std::vector<std::unique_ptr<FrozenStack>> frozen_;
  std::map<std::string, std::string> fingerprints_;
};

}  // namespace keel
