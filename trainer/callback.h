#pragma once
// Code at fixed points of a run. keel's own features (early stopping, averages of weights) are callbacks.

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "keel/nn/tensor_parts.h"
#include "keel/runtime/json.h"
#include "keel/trainer/loop_view.h"

namespace keel {

class Settings;

// What a callback keeps from session to session.
struct CallbackState {
  // Equal on every rank, which is checked when it is saved. JSON has no infinities: one is an Error that names the
  // callback, as the checkpoint would not give it back.
  Json numbers = nullptr;
  // Views of what this rank owns, cut as Sharded::weights() is, the same ones at every call. Saved and loaded by any
  // number of ranks, as section "callback.NAME". A save may still read them later: Sharded::wait_until_released() comes
  // before they are written.
  TensorParts tensors = {};
};

// Every rank has the same callbacks in the same order and gets every event in the same order; an event comes on every
// rank, unless it says otherwise.
//
//   fit_begin [resumed]
//   ([epoch_begin]
//    step_begin (before_backward after_backward) for each micro-batch, before_optimizer_step after_optimizer_step
//    step_end [evaluation_begin evaluation_end] [checkpoint_saved]
//    [epoch_end]) for each step
//   [exception | interrupt] fit_end
//
// An epoch that ends inside a step counts with it. A run that begins or ends inside an epoch has no epoch_begin or
// epoch_end for it; where the data has no epochs there are neither.
// A step that finds no memory has out_of_memory, and where it is tried again (safe_steps) those of its micro-batches
// once more. A step that the optimizer evaluates several times has before_backward and after_backward as often, and
// both events of the optimizer after them. Under cuda_graph a micro-batch has after_backward alone. Events are told by
// the training thread, between pieces of work that the device may still be at: reading a tensor waits for the device
// and costs the overlap.
//
// What throws. From fit_begin, resumed and fit_end: told to all at once. From any other event on one rank: the callback
// is not called again on that rank, but for exception and fit_end; the others are; the rank tells it with the next
// exchange, and all ranks end in order after saving, naming callback, event, rank and reason. An AgreedError
// ends all at once, likewise after saving. From out_of_memory and exception, and from fit_end of a run that ends by
// another error: a message; the first error is the one that is told.
class Callback {
 public:
  virtual ~Callback() = default;
  // In messages and checkpoints: letters, digits and _, another one for each callback of a run.
  virtual std::string_view name() const = 0;

  virtual void fit_begin(LoopView&) {}
  virtual void resumed(LoopView&) {}  // the engine has the checkpoint's numbers, and load() was called
  virtual void epoch_begin(LoopView&) {}
  virtual void step_begin(LoopView&) {}
  virtual void before_backward(LoopView&) {}  // after the forward pass of a micro-batch
  virtual void after_backward(LoopView&) {}
  // The gradients of all micro-batches have been asked for, as sums that are not yet divided.
  virtual void before_optimizer_step(LoopView&) {}
  virtual void after_optimizer_step(LoopView&) {}  // what it changes beside the weights goes by view.taken()
  virtual void step_end(LoopView&) {}              // state().known has moved on, or the device is not done yet
  // With the weights that are evaluated: an average of weights is swapped in here, and out at the end. No checkpoint
  // begins between the two. evaluation_end comes also where the evaluation failed on all ranks, before anything is
  // saved; `done` is false then, and state().metrics is that of the evaluation before.
  virtual void evaluation_begin(LoopView&) {}
  virtual void evaluation_end(LoopView&, bool /*done*/) {}
  virtual void checkpoint_saved(LoopView&, const std::string& /*path*/, std::int64_t /*step*/) {}  // it is there
  virtual void epoch_end(LoopView&) {}
  // A micro-batch of this rank found no memory. The step is tried again, or exception follows. Without collectives.
  virtual void out_of_memory(LoopView&, const std::exception& /*error*/) {}
  // Before what was learnt is saved, on the ranks that know of it. Without collectives.
  virtual void exception(LoopView&, const std::exception& /*error*/) {}
  virtual void interrupt(LoopView&) {}  // some rank was asked to end by a signal; the run ends in order
  virtual void fit_end(LoopView&) {}    // everything is saved

  // Kept in every checkpoint. save() is called after fit_begin, between two steps, and takes views; load() gets numbers
  // equal to those saved, once the views that save() gives are filled: tensors that are missing, or of another shape,
  // are an Error that names the callback. A checkpoint without this callback's numbers calls no load(): it begins anew,
  // and a message says so. Numbers of a callback that the run no longer has are left out, with a message.
  virtual CallbackState save() { return {}; }
  virtual void load(const Json& /*numbers*/) {}
};

using Callbacks = std::vector<std::shared_ptr<Callback>>;
// Makes the callbacks of one rank. `config` has the values of the run's keys, those of the task among them.
using CallbackFactory = std::function<Callbacks(const Settings& config)>;

}  // namespace keel
