// PyTorch's schedules (torch.optim.lr_scheduler), in closed form.

#include <algorithm>
#include <cmath>
#include <numbers>

#include "keel/optim/schedules/formulas.h"

namespace keel::schedules {
namespace {

using P = ScheduleParameter;

constexpr double kTriangular2 = 1, kExpRange = 2;  // places in the list of modes
constexpr double kLinearAnneal = 1;                // in that of anneal

// How far a cycle of CyclicLR is from its lower boundary, from 0 to 1.
double cycle_height(const ScheduleNumbers& n, double t) {
  const double up = n[P::step_size_up], down = n[P::step_size_down];
  double scale = 1;
  if (n[P::mode] == kTriangular2) scale = std::exp2(-std::floor(t / (up + down)));
  if (n[P::mode] == kExpRange) scale = std::pow(n[P::gamma], t);
  return triangle(t, up, down) * scale;
}

double anneal(const ScheduleNumbers& n, double start, double end, double progress) {
  if (n[P::anneal] == kLinearAnneal) return (end - start) * progress + start;
  return end + (start - end) / 2 * (std::cos(std::numbers::pi * progress) + 1);
}

// Smith and Topin 2018, "Super-convergence": up and down, and with three phases the way down mirrors the way up before
// the rate dies out. Smith's momentum goes the other way.
double one_cycle_phases(const ScheduleNumbers& n, double t, double low, double high, double last) {
  const double steps = n[P::steps], rise = n[P::pct_start] * steps - 1;
  t = std::min(t, steps - 1);
  if (t <= rise) return rise == 0 ? high : anneal(n, low, high, t / rise);
  if (n[P::three_phase] == 0) return anneal(n, high, last, (t - rise) / (steps - 1 - rise));
  const double fall = 2 * n[P::pct_start] * steps - 2;
  if (t <= fall) return anneal(n, high, low, (t - rise) / (fall - rise));
  return anneal(n, low, last, (t - fall) / (steps - 1 - fall));
}

}  // namespace

double step_lr(const ScheduleNumbers& n, double t) { return std::pow(n[P::gamma], std::floor(t / n[P::step_size])); }

double multi_step_lr(const ScheduleNumbers& n, double t) {
  const auto passed = std::count_if(n.milestones.begin(), n.milestones.end(),
                                    [&](std::int64_t milestone) { return static_cast<double>(milestone) <= t; });
  return std::pow(n[P::gamma], static_cast<double>(passed));
}

double constant_lr(const ScheduleNumbers& n, double t) { return t < n[P::total_iters] ? n[P::factor] : 1; }

double linear_lr(const ScheduleNumbers& n, double t) {
  const double start = n[P::start_factor], total = n[P::total_iters];
  return start + (n[P::end_factor] - start) * std::min(t, total) / total;
}

double exponential_lr(const ScheduleNumbers& n, double t) { return std::pow(n[P::gamma], t); }

double polynomial_lr(const ScheduleNumbers& n, double t) {
  const double total = n[P::total_iters];
  return std::pow(1 - std::min(t, total) / total, n[P::power]);
}

double cosine_annealing_lr(const ScheduleNumbers& n, double t) {
  const double end = n[P::min_lr], position = std::fmod(t, 2 * n[P::t_max]);
  return end + (1 - end) * half_cosine(position / n[P::t_max]);
}

double cosine_annealing_warm_restarts(const ScheduleNumbers& n, double t) {
  double position = t, length = n[P::t_0];
  if (n[P::t_mult] == 1) {
    position = std::fmod(t, length);
  } else {
    while (position >= length) {
      position -= length;
      length *= n[P::t_mult];
    }
  }
  const double end = n[P::min_lr];
  return end + (1 - end) * half_cosine(position / length);
}

double cyclic_lr(const ScheduleNumbers& n, double t) {
  return n[P::base_lr] + (n[P::max_lr] - n[P::base_lr]) * cycle_height(n, t);
}
double cyclic_lr_momentum(const ScheduleNumbers& n, double t) {
  return n[P::max_momentum] - (n[P::max_momentum] - n[P::base_momentum]) * cycle_height(n, t);
}

double one_cycle_lr(const ScheduleNumbers& n, double t) {
  const double high = n[P::max_lr], low = high / n[P::div_factor];
  return one_cycle_phases(n, t, low, high, low / n[P::final_div_factor]);
}
double one_cycle_lr_momentum(const ScheduleNumbers& n, double t) {
  return one_cycle_phases(n, t, n[P::max_momentum], n[P::base_momentum], n[P::max_momentum]);
}

}  // namespace keel::schedules
