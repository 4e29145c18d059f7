#pragma once
// The time that a run may take, and the learning rates of a run that its time ends.

#include <cstdint>
#include <optional>

#include "keel/trainer/config.h"
#include "keel/trainer/learning_rate.h"
#include "keel/trainer/time_spent.h"

namespace keel {

// Steps that a run takes in the end: config.steps, or fewer where its time_limit ends it before, namely those taken and
// as many as the time left allows at the mean speed so far. Before the first timed step no speed is known, and
// config.steps is the answer. More than `done` in any case.
std::int64_t expected_steps(const Config& config, const TimeSpent& spent, std::int64_t done);

// The time of a session of a run. Its clock is a rank's own; what all ranks decide by is what they have heard alike.
class RunTime {
 public:
  // `before`: of the sessions before. `config` must outlive this.
  RunTime(const Config& config, const TimeSpent& before) : config_(config), spent_(before), configured_(config) {}

  void begin();
  // The run's, up to now, by this rank's clock.
  double seconds() const;
  // Whether this rank's clock says that the session ends: by time_limit or by session_limit.
  bool is_over() const;

  // What the first rank's clock showed after so many taken steps; 0 seconds: it was not asked.
  void hear(double seconds, std::int64_t steps);
  const TimeSpent& spent() const { return spent_; }
  // Whether nothing is left of the run's time.
  bool is_spent() const { return has_limit() && spent_.seconds >= config_.time_limit; }

  // With a time limit the rate of a step is that of a schedule as long as the run is expected to be, so that the curve
  // ends where the run does, and counts of steps, such as a warm-up's, stay what they are. Where the schedule does not
  // fit into so few steps it is as long as config.steps.
  bool has_limit() const { return config_.time_limit > 0; }
  const LearningRate& rates_after(std::int64_t done);

 private:
  const Config& config_;
  TimeSpent spent_;
  double before_ = spent_.seconds;  // of sessions before
  double began_ = 0;
  LearningRate configured_;
  std::optional<LearningRate> shorter_;  // that of shorter_steps_, where it fits
  std::int64_t shorter_steps_ = 0;
};

}  // namespace keel
