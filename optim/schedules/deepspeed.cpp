// DeepSpeed's schedules (deepspeed.runtime.lr_schedules). Those with a warm-up count from the first step taken, so that
// the first two steps have the same rate.

#include <algorithm>
#include <cmath>

#include "keel/optim/schedules/formulas.h"

namespace keel::schedules {
namespace {

using P = ScheduleParameter;

constexpr double kLog = 0;  // its place in the list of rises

// A warm-up shorter than two steps has no logarithm to divide by.
double warmup_of(const ScheduleNumbers& n) { return std::max(2.0, n[P::warmup]); }

// From 0 to 1, at `t` below the warm-up's length.
double rising(const ScheduleNumbers& n, double t) {
  return n[P::warmup_type] == kLog ? std::log(t + 1) / std::log(warmup_of(n)) : t / warmup_of(n);
}

double between_rates(const ScheduleNumbers& n, double height) {
  return n[P::base_lr] + (n[P::max_lr] - n[P::base_lr]) * height;
}

double cycle_length(const ScheduleNumbers& n) { return n[P::step_size_up] + n[P::step_size_down]; }

// How far the cycle is from its lower boundary, from 0 to 1, in stairs where there are some.
double staircase_height(const ScheduleNumbers& n, double t) {
  const double up = n[P::step_size_up], down = n[P::step_size_down], position = std::fmod(t, up + down);
  const bool rises = position <= up;
  const double stairs = n[rises ? P::first_stairs : P::second_stairs];
  if (stairs == 0) return triangle(t, up, down);
  return std::floor(rises ? position * stairs / up : (up + down - position) * stairs / down) / stairs;
}

// 1 + rate for each decay_step_size steps after the cycle; 1 where nothing decays.
double decay_after_cycle(const ScheduleNumbers& n, P rate, double t) {
  if (n[P::decay_step_size] == 0) return 1;
  return 1 + n[rate] * (t - cycle_length(n)) / n[P::decay_step_size];
}

}  // namespace

double warmup_lr(const ScheduleNumbers& n, double t) {
  const double before = std::max(t - 1, 0.0);
  return between_rates(n, before < warmup_of(n) ? rising(n, before) : 1);
}

double warmup_decay_lr(const ScheduleNumbers& n, double t) {
  const double before = std::max(t - 1, 0.0), warmup = warmup_of(n);
  if (before < warmup) return between_rates(n, rising(n, before));
  return between_rates(n, std::max(0.0, (n[P::steps] - before) / std::max(1.0, n[P::steps] - warmup)));
}

double warmup_cosine_lr(const ScheduleNumbers& n, double t) {
  if (t == 0) return 0;
  const double warmup = warmup_of(n);
  if (t - 1 < warmup) return n[P::start_ratio] + (1 - n[P::start_ratio]) * rising(n, t - 1);
  const double progress = std::min(1.0, (t - warmup) / std::max(1.0, n[P::steps] - warmup));
  return std::max(0.0, n[P::min_ratio] + (1 - n[P::min_ratio]) * half_cosine(progress));
}

double one_cycle(const ScheduleNumbers& n, double t) {
  if (t <= cycle_length(n)) return between_rates(n, staircase_height(n, t));
  return n[P::base_lr] / decay_after_cycle(n, P::decay_lr_rate, t);
}
double one_cycle_momentum(const ScheduleNumbers& n, double t) {
  if (t <= cycle_length(n))
    return n[P::max_momentum] - (n[P::max_momentum] - n[P::base_momentum]) * staircase_height(n, t);
  return n[P::max_momentum] * decay_after_cycle(n, P::decay_momentum_rate, t);
}

double lr_range_test(const ScheduleNumbers& n, double t) {
  const double intervals = t / n[P::step_size];
  return n[P::base_lr] * (1 + n[P::step_rate] * (n[P::staircase] == 0 ? intervals : std::floor(intervals)));
}

}  // namespace keel::schedules
