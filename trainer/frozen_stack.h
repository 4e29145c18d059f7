#pragma once
// A stack that is not trained: a model whose parameters are sharded as the configuration says, and no more. Neither
// gradients nor an optimizer's state.

#include <string>

#include "keel/nn/tensor_parts.h"
#include "keel/trainer/stack.h"

namespace keel {

class FrozenStack {
 public:
  // Freezes the model's parameters and gives them memory, with initial numbers until somebody loads others; the model
  // must outlive the stack. Collective. Of the site, micro-batches do not matter.
  FrozenStack(const StackSite& site, Module& model, int first_subject = 1);

  Sharded& engine() { return engine_; }
  const Sharded& engine() const { return engine_; }

 private:
  Sharded engine_;
};

// Gives a frozen model of a task its weights, from where it says (StackModel::weights), and returns their fingerprint
// (WeightsSource::identity). `ranks`: those of the stack, by a communicator of the processor. Every rank calls it. An
// AgreedError names the model: of find_weights(), of weights of another model, and of numbers that are not finite.
std::string load_frozen(const StackModel& model, FrozenStack& stack, Communicator& ranks);

// What an engine needs that only answers: parameters, and how they are gathered.
ShardedOptions answering_options(const Config& config, Module& model, int ranks);

// The first part that has a number which is not finite; empty: none has.
std::string first_not_finite(const TensorParts& parts);

}  // namespace keel
