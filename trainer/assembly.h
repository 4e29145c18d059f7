#pragma once
// The objects that a configuration describes: context, optimizer, learning rates, options of the engine.

#include <memory>
#include <string>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/optim/optimizer.h"
#include "keel/trainer/config.h"

namespace keel {

// For a rank: its device, and as many threads as fall to it. Unless config.threads says how many, the ranks of a node
// share its processors.
Context make_context(const Config& config, const Communicator& communicator, LogSink log);

// The same ranks with a thread for communication, where the configuration asks for it or a processor is free for it;
// then nothing else may use `ranks` meanwhile. Otherwise nothing. Every rank calls it, and all get the same.
std::unique_ptr<Communicator> make_background(const Config& config, Communicator& ranks);

// Where the schedule cycles a momentum that is 0 otherwise, the optimizer keeps what it needs for it.
std::unique_ptr<Optimizer> make_optimizer(const Config& config);

// Which parameters have which decay and rate.
GroupRule make_groups(const Config& config);
// An Error where a group fits no parameter: a misspelling. Which words of patterns fit none, as a note; empty: all do.
std::string check_groups(const Config& config, const Sharded& engine);

// The learning rate of each step and, where the schedule cycles it, the momentum.
StepCurves make_curves(const Config& config, const Context& context);

// `config.strategy.precision` must have been decided. The embeddings of the model keep states that are not in 8 bits.
ShardedOptions engine_options(const Config& config, std::int64_t micro_batches, Module& model);

// What the engine talks through: the ranks' own communicator for the processor; among GPUs NCCL, or copies in the
// memory of their processors.
class DeviceCommunicator {
 public:
  // Every rank calls it. Tells the context's log where NCCL could not be had.
  DeviceCommunicator(const Config& config, const Context& context, Communicator& ranks);
  Communicator& operator*() { return own_ != nullptr ? *own_ : ranks_; }

 private:
  Communicator& ranks_;
  std::unique_ptr<Communicator> own_;
};

}  // namespace keel
