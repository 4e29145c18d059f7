#pragma once
// A stack that is not trained: a model whose parameters are sharded as the configuration says, and no more. Neither
// gradients nor an optimizer's state.

#include <memory>
#include <string>

#include "keel/trainer/stack.h"

namespace keel {

class FrozenStack {
 public:
  // Freezes the model's parameters and gives them memory, with initial numbers until somebody loads others; the model
  // must outlive the stack. Where groups may be lost, each divides the weights among its own ranks and asks no others.
  // Collective. Of the site, micro-batches do not matter.
  FrozenStack(const StackSite& site, Module& model, int first_subject = 1);

  Sharded& engine() { return engine_; }
  const Sharded& engine() const { return engine_; }
  // The ranks of the group, which other models do not use; null: the weights are divided among those of the site.
  Communicator* group() { return group_.get(); }

 private:
  std::unique_ptr<Communicator> group_;  // goes last
  Sharded engine_;
};

// Gives a frozen model of a task its weights, from where it says (StackModel::weights), and returns their fingerprint
// (WeightsSource::identity). `ranks`: those of the run, by a communicator of the processor. Every rank calls it. An
// AgreedError of load_named_weights() names the model.
std::string load_frozen(const StackModel& model, FrozenStack& stack, Communicator& ranks);

// What an engine needs that only answers: parameters, and how they are gathered.
ShardedOptions answering_options(const Config& config, Module& model, int ranks);

}  // namespace keel
