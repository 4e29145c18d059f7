#pragma once
// A task that steers its own step: several models, each with an optimizer of its own, in any order.
//
//   void training_step(ManualStep& step) override {
//     step.train("critic", [&](const Batch& batch, Forward& pass) { return ...; });
//     step.train("generator", [&](const Batch& batch, Forward& pass) { return ...; });
//   }

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "keel/tasks/task.h"

namespace keel {

// One step of the run: the same micro-batches for as many passes as the task makes.
//
// Every rank calls the same functions with the same names in the same order, whatever its data is; conditions are on
// number() or on what is equal everywhere, such as an Outcome. Ranks tell each other each call, so a difference, or a
// call that is out of order, ends the run on all of them in words, after saving.
class ManualStep {
 public:
  // What has become of an update; the same on every rank.
  struct Outcome {
    bool taken = false;
    double loss = 0;  // of the last accumulate() before it, over all ranks; not a number where no term had weight
    double grad_norm = 0, lr = 0;
  };

  virtual ~ManualStep() = default;
  virtual std::int64_t number() const = 0;  // of the step in the run, counted from 1
  // The micro-batches of this rank; as many on every rank, and some may be stand-ins.
  virtual std::span<const Batch> batches() const = 0;

  // Forward and backward of every micro-batch, then the update of that model: accumulate() and update().
  void train(std::string_view stack, const LossFunction& loss) {
    accumulate(stack, loss);
    update(stack);
  }
  // Forward and backward of every micro-batch, in order. Terms of a model's losses are means over the same weights in
  // all of a session. Only parameters of `stack` get gradients: all other models are
  // constants meanwhile, through which gradients flow. Weights of terms, stand-ins and micro-batches are treated as
  // with Task. At most StackModel::passes calls for an update. `last`: update() or zero_grad() comes before the next
  // accumulate() of the stack. Draws of `pass` go on from one accumulate() of a step to the next. Buffers of all models
  // observe, unless `loss` sets pass.observes = false; a model's update takes what they have observed since the one
  // before, and the end of the step forgets the rest.
  virtual void accumulate(std::string_view stack, const LossFunction& loss, bool last = true) = 0;
  // The optimizer of that model, with its own clip, count of updates, skipping and loss scale. The rate is that of the
  // run's step: several updates of a step have the same, and one that is skipped counts. Divides by the weights of all
  // its accumulate() calls since the last one. An Error where none of them was the last.
  virtual void update(std::string_view stack) = 0;
  // Forgets what was accumulated, and what the model's buffers have observed.
  virtual void zero_grad(std::string_view stack) = 0;
  // What became of the latest update of that model in this step; waits for the device. Collective. An Error where there
  // was none.
  virtual Outcome outcome(std::string_view stack) = 0;
};

class ManualTask : public TaskBase {
 public:
  // Models that are trained have names, those of the task's entry (TaskEntry::stacks). Each has the configuration's
  // optimizer, schedule, clip and loss scale, unless the key stacks.NAME says otherwise; its losses are recorded as
  // NAME/TERM, and checkpoints keep it as NAME.
  std::vector<StackModel> stacks() override = 0;
  // Calls train() or accumulate() at least once; a step may leave models out. Gradients do not outlive the step: what
  // was accumulated is taken by update() or dropped by zero_grad(). A loss that is not finite ends the run before the
  // update that it would go into, and is named by model and term; what is saved then has the updates that the step had
  // made before. A step that finds no memory is not tried again (safe_steps). Callbacks hear of the micro-batches of
  // each pass, and of each update as of an optimizer's step.
  virtual void training_step(ManualStep& step) = 0;
  std::string why_not_recordable() const override { return "a task that steers its own steps cannot be recorded"; }
  // An Error: a task with validation sets says how they are validated.
  void validation_step(const Batch& batch, Forward& pass, Metrics& metrics) override;
};

}  // namespace keel
