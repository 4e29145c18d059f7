#pragma once
// Learning-rate schedules: pure functions from a step to a factor on the base rate, and to a momentum.
//
// A schedule has no state: who resumes at a step asks for that step. Absolute learning rates among its parameters
// (min_lr, max_lr, ...) are divided by the base rate once, so that a parameter group with a rate of its own keeps its
// ratio to the others all the way.

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "keel/optim/schedule_table.h"

namespace keel {

// What is wrong with the settings; empty: a RateSchedule can be made of them. `total`: steps of the run, 0 where that
// is not known; `base_rate`: optimizer.lr, > 0.
ScheduleComplaints check_schedule(const ScheduleSettings& settings, double base_rate, std::int64_t total);

class RateSchedule {
 public:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  // Throws Error with the first complaint of check_schedule().
  RateSchedule(const ScheduleSettings& settings, double base_rate, std::int64_t total);

  const ScheduleKind& kind() const;
  // Factor on the base rate for the step that follows `done` taken steps. Throws Error for a step after the end of a
  // schedule that ends.
  double factor(std::int64_t done) const;
  // Momentum (beta1 of Adam's kin) for that step, where the schedule cycles it.
  std::optional<double> momentum(std::int64_t done) const;
  bool cycles_momentum() const;
  // The step from which the factor stays as it is, or kNever.
  std::int64_t settles() const;
  // Factor on the rate of parameters in layer `depth`, the deepest of which is at the output; 1 without layer_decay.
  double layer_factor(double depth, double deepest) const;

  // Whether both have the same formula and numbers, `auto` and ratios resolved.
  bool operator==(const RateSchedule&) const = default;

 private:
  // The part that is at work after `done` steps, and the steps since it began.
  std::pair<const RateSchedule*, std::int64_t> part_at(std::int64_t done) const;

  int type_;
  ScheduleNumbers numbers_;
  std::vector<RateSchedule> parts_;
};

}  // namespace keel
