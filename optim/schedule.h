#pragma once
// Learning-rate schedules: pure functions from a step to a factor on the peak rate.

#include <cstdint>

namespace keel {

enum class Decay : unsigned char { constant, linear, cosine };

// Linear warm-up from 0, then a decay to `final_factor`, which is reached at step `steps` and kept.
// Cosine: Loshchilov and Hutter 2017, "SGDR", without restarts.
struct RateSchedule {
  Decay decay = Decay::constant;
  std::int64_t warmup = 0;  // steps; the factor reaches 1 at step `warmup`
  std::int64_t steps = 1;   // at least warmup
  double final_factor = 0;  // not used by a constant schedule

  // Factor for the step that follows `done` steps, done >= 0.
  double factor(std::int64_t done) const;
};

}  // namespace keel
