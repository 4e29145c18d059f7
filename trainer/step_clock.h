#pragma once
// The time of training steps: of each by itself, of those between two records, and a mean of the latest.

#include <cstdint>

#include "keel/runtime/language.h"

namespace keel {

// A step begins where the one before has ended, or at the last begin(), and ends with its end_step(). What lies between
// an end and a begin() is part of no step: evaluations, checkpoints.
class StepClock {
 public:
  // `now` is that of a steady clock, in seconds; `waited_ms` is all that this rank has waited for others so far.
  void begin(double now, double waited_ms);
  void end_step(double now, double waited_ms);

  // Seconds of a step: a mean in which a step counts 0.9 times as much as the one after it. Steps must have ended.
  double mean_seconds() const { return weighted_ / weights_; }

  // Means over the steps that have ended since the last call, in milliseconds. A step has ended since.
  struct Interval {
    double step_ms = 0;
    double exposed_ms = 0;  // in which this rank waited for others; no more than step_ms
  };
  Interval take_interval();

 private:
  double began_ = 0, waited_before_ = 0;
  double seconds_ = 0, waited_ms_ = 0;  // since the last call of take_interval(), in so many steps
  std::int64_t steps_ = 0;
  double weighted_ = 0, weights_ = 0;
};

}  // namespace keel
