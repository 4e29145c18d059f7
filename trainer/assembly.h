#pragma once
// The objects that a configuration describes: context, optimizer, learning rates, options of the engine.

#include <memory>
#include <string>

#include "keel/dist/comm/collective_route.h"
#include "keel/dist/comm/communicator.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/optim/optimizer.h"
#include "keel/trainer/config.h"

namespace keel {

class LearningRate;

// The context of a rank, on its device. Unless config.threads says how many threads it has, the ranks of a node share
// the node's processors evenly.
Context make_context(const Config& config, const Communicator& communicator, LogSink log);

// A communicator of the same ranks with a thread for communication, where the configuration asks for one or a processor
// is free for it; while it lives nothing else may use `ranks`. Otherwise null. Every rank calls it, and all get the
// same answer.
std::unique_ptr<Communicator> make_background(const Config& config, Communicator& ranks);

// Where the schedule cycles a momentum that is 0 otherwise, the optimizer has the state for one.
std::unique_ptr<Optimizer> make_optimizer(const Config& config);

// Which parameters of the model have which decay and rate, and which keep full states.
GroupRule make_groups(const Config& config, Module& model);
// Of the model's parameters, each once.
LayerDepths depths_of(Module& model);
// Throws an Error where a group fits no parameter, which is a misspelling. Returns a note on words of patterns that fit
// none; empty: all do.
std::string check_groups(const Config& config, Module& model);

// The learning rate of each step and, where the schedule cycles it, the momentum.
StepCurves make_curves(const Config& config, const Context& context);
// Of so many steps, as tables on the device.
StepCurves tabulated(const LearningRate& rates, std::int64_t steps, const Context& context);
// Of the one step that follows `done` taken ones.
StepCurves make_curves(const LearningRate& rates, std::int64_t done, const Context& context);
// With so many times the rates. Waits for the device.
StepCurves scaled(const StepCurves& curves, double factor);

// Numbers of parameters and of gradients' sums. `config.strategy.precision` must have been decided.
PrecisionPolicy precision_policy(const Config& config);
// Likewise. The model's embeddings keep their states in full precision.
ShardedOptions engine_options(const Config& config, std::int64_t micro_batches, Module& model);

// What whole gradients cost that stages 2 and 3 keep until a step's last micro-batch; empty: they keep none.
std::string accumulation_note(const Sharded& engine);

// By what the ranks of such a run exchange numbers, on a device or on processors.
CollectiveRoute collective_route(const ShardingConfig& sharding, bool on_device);

// The communicator that the engine uses: on processors the ranks' own; between GPUs NCCL, or copies through the
// processors' memory.
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
