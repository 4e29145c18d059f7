#pragma once
// The learning rates of a configuration: its schedule, at the pace and on the base rate that the configuration says.

#include <cstdint>
#include <optional>
#include <utility>

#include "keel/optim/schedule.h"
#include "keel/trainer/config.h"

namespace keel {

// `steps`: of the run; without it those of the configuration.
ScheduleComplaints check_learning_rates(const Config& config);
ScheduleComplaints check_learning_rates(const Config& config, std::int64_t steps);

class LearningRate {
 public:
  explicit LearningRate(const Config& config) : LearningRate(config, config.steps) {}
  // Of a run that has another number of steps.
  LearningRate(const Config& config, std::int64_t steps);
  // Of a schedule without a configuration, that moves with every step.
  LearningRate(RateSchedule schedule, double base_rate)
      : base_rate_(base_rate), pace_(1), schedule_(std::move(schedule)) {}
  // For the step that follows `done` taken steps; a skipped step is not taken.
  double rate(std::int64_t done) const { return base_rate_ * schedule_.factor(done / pace_); }
  std::optional<double> momentum(std::int64_t done) const { return schedule_.momentum(done / pace_); }
  // The step from which the rate stays as it is, or RateSchedule::kNever.
  std::int64_t settles() const;
  const RateSchedule& schedule() const { return schedule_; }
  // Whether the factors on the base rate are the same; so a schedule that is told to last as long as the run differs
  // where the run's length does.
  bool moves_like(const LearningRate& other) const { return pace_ == other.pace_ && schedule_ == other.schedule_; }

 private:
  double base_rate_;
  std::int64_t pace_;  // steps between two moves of the schedule
  RateSchedule schedule_;
};

}  // namespace keel
