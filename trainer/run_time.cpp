#include "keel/trainer/run_time.h"

#include <algorithm>
#include <cmath>

#include "keel/runtime/stopwatch.h"

namespace keel {

std::int64_t expected_steps(const Config& config, const TimeSpent& spent, std::int64_t done) {
  const auto timed = static_cast<double>(spent.steps - spent.since);
  if (config.time_limit <= 0 || timed <= 0 || spent.seconds <= 0) return config.steps;
  const double left = std::max(0.0, config.time_limit - spent.seconds);
  const double exact = timed * left / spent.seconds;
  const double more = std::ceil(exact - 1e-9 * std::max(1.0, exact));  // 2 steps may be 2.0000000000000071 in doubles
  if (more >= static_cast<double>(config.steps - spent.steps)) return config.steps;
  return std::min(config.steps, std::max(done + 1, spent.steps + static_cast<std::int64_t>(more)));
}

void RunTime::begin() { began_ = seconds_now(); }

double RunTime::seconds() const { return before_ + (seconds_now() - began_); }

bool RunTime::is_over() const {
  const double session = seconds_now() - began_;
  return (has_limit() && before_ + session >= config_.time_limit) ||
         (config_.session_limit > 0 && session >= config_.session_limit);
}

void RunTime::hear(double seconds, std::int64_t steps) {
  if (!has_limit() || seconds <= 0) return;
  spent_.seconds = seconds;
  spent_.steps = steps;
}

const LearningRate& RunTime::rates_after(std::int64_t done) {
  const std::int64_t steps = expected_steps(config_, spent_, done);
  if (steps == config_.steps) return configured_;
  if (steps != shorter_steps_) {
    shorter_steps_ = steps;
    shorter_.reset();
    if (check_learning_rates(config_, steps).empty()) shorter_.emplace(config_, steps);
  }
  return shorter_ ? *shorter_ : configured_;
}

}  // namespace keel
