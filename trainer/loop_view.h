#pragma once
// What a callback sees of a run, and what it may ask of it.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "keel/runtime/context.h"
#include "keel/runtime/tensor.h"

namespace keel {

class Communicator;
class Sharded;

// Where the run stands. On a device the host is a step ahead of what it knows: `step` is the last step that was asked
// for, and `known` the last one whose outcome is there (the same on the processor). Every number is the same on every
// rank, except seconds and waited_ms.
struct LoopState {
  std::int64_t step = 0, steps = 0;  // steps: of the whole run
  double epoch = 0;                  // passed by `step`, with fractions; 0 where the data has none
  std::int64_t micro_batch = -1;     // the one that is computed, from 0; -1: none
  std::int64_t known = 0;
  double loss = 0, lr = 0, grad_norm = 0;  // of step `known`
  // Of step `known`, the terms of its loss that have names, and what the task logs, as means; not a number where
  // nothing had weight.
  std::map<std::string, double, std::less<>> terms = {};
  bool taken = true;       // whether step `known` was taken
  std::int64_t units = 0;  // trained on up to step `known`, in Task::unit()
  // Of the last evaluation, by their names in records: "validation_loss", "accuracy", "others/loss"; and its step.
  std::map<std::string, double, std::less<>> metrics = {};
  std::int64_t evaluated = 0;
  double rate_factor = 1;  // on the learning rates
  double seconds = 0;      // of training, in this session
  double waited_ms = 0;    // this rank's, for others
};

// A rank's view. Valid during the call that gets it, for the thread that is called.
class LoopView {
 public:
  virtual ~LoopView() = default;
  virtual const LoopState& state() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  bool is_first() const { return rank() == 0; }
  virtual const std::string& run_folder() const = 0;  // only the first rank writes there
  virtual const std::string& config() const = 0;      // resolved, as YAML
  virtual const Context& context() const = 0;
  virtual void message(LogLevel level, std::string_view text) = 0;  // to console and log of this rank

  // Whoever changes weights does so between two steps, on every rank alike, by the views of Sharded::weights(), after
  // wait_until_released() (a checkpoint may still read them) and before adopt_weights().
  virtual Sharded& engine() = 0;

  // Whether the latest update was taken: i64 (1) on the context's device, 1 or 0, without waiting for it. What follows
  // the weights, such as their average, moves by it; a step that was skipped changes nothing. Read it in
  // after_optimizer_step; a view of what the next step changes.
  virtual Tensor taken() const = 0;

  // Requests count where any rank has asked, and every rank does the same at the same step. Those of an evaluation's
  // events are agreed at its end; all others with what ranks tell each other in the next step, and they count after it.
  // Those that follow from the clock do not repeat in a resumed run.
  virtual void ask_stop(std::string_view reason) = 0;  // the run ends in order, after saving
  virtual void ask_evaluation() = 0;
  virtual void ask_checkpoint() = 0;
  // Factor on the learning rates of all later steps, at least 0 and finite. Every rank asks for the same in the same
  // event; a difference is an AgreedError that names the rank. It is in checkpoints, so that a resumed run goes on with
  // it.
  virtual void set_rate_factor(double factor) = 0;

  // A number for the next record of metrics.jsonl; the first rank's counts. Names that keel's records have are an
  // Error.
  virtual void log(std::string_view name, double value) = 0;

  // f on this rank, which may fail here alone; every rank comes here, in the same event. Where it fails on any, all get
  // the AgreedError. f asks for no collective.
  virtual void together(const std::function<void()>& f) = 0;
  // For collectives of one's own; every rank asks for the same ones in the same event. What throws between two of them
  // on one rank alone ends the others by that rank's failure, without a checkpoint: use together() for what may.
  virtual Communicator& ranks() = 0;
};

}  // namespace keel
