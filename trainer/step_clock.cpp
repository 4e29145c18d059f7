#include "keel/trainer/step_clock.h"

#include <utility>

namespace keel {

void StepClock::begin(double now, double waited_ms) {
  began_ = now;
  waited_before_ = waited_ms;
}

void StepClock::end_step(double now, double waited_ms) {
  const double seconds = now - std::exchange(began_, now);
  seconds_ += seconds;
  waited_ms_ += waited_ms - std::exchange(waited_before_, waited_ms);
  ++steps_;
  constexpr double kKept = 0.9;
  weighted_ = kKept * weighted_ + seconds;
  weights_ = kKept * weights_ + 1;
}

StepClock::Interval StepClock::take_interval() {
  const auto steps = static_cast<double>(std::exchange(steps_, 0));
  return {1e3 * std::exchange(seconds_, 0) / steps, std::exchange(waited_ms_, 0) / steps};
}

}  // namespace keel
