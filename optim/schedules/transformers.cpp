// Schedules of Hugging Face's transformers and of transformers-framework.

#include <algorithm>
#include <cmath>
#include <numbers>

#include "keel/optim/schedules/formulas.h"

namespace keel::schedules {
namespace {

using P = ScheduleParameter;

constexpr double kLinearShape = 0, kCosineShape = 1;  // places in the list of shapes

// A linear warm-up from 0, then after(progress), where progress is 0 at the warm-up's end and 1 at `steps`.
template <class After>
double warmed(const ScheduleNumbers& n, double t, const After& after) {
  const double warmup = n[P::warmup];
  if (t < warmup) return t / warmup;
  return after((t - warmup) / std::max(1.0, n[P::steps] - warmup));
}

// `cycles` waves, which begin at 1.
double wave(double cycles, double progress) { return 0.5 * (1 + std::cos(std::numbers::pi * cycles * 2 * progress)); }

double raised(double factor, double floor) { return std::max(0.0, factor * (1 - floor) + floor); }

// The end of a cosine may be given as a rate or as a ratio; the other one is 0.
double floor_of(const ScheduleNumbers& n) { return std::max(n[P::min_lr], n[P::min_ratio]); }

double power_decay(const ScheduleNumbers& n, double end, double progress) {
  return (1 - end) * std::pow(1 - progress, n[P::power]) + end;
}

}  // namespace

double constant_with_warmup(const ScheduleNumbers& n, double t) { return t < n[P::warmup] ? t / n[P::warmup] : 1; }

double linear_with_warmup(const ScheduleNumbers& n, double t) {
  return warmed(n, t, [](double progress) { return std::max(0.0, 1 - progress); });
}

double cosine_with_warmup(const ScheduleNumbers& n, double t) {
  return warmed(n, t, [&](double progress) { return std::max(0.0, wave(n[P::cycles], progress)); });
}

double cosine_with_restarts(const ScheduleNumbers& n, double t) {
  return warmed(n, t, [&](double progress) {
    return progress >= 1 ? 0 : std::max(0.0, half_cosine(std::fmod(n[P::cycles] * progress, 1.0)));
  });
}

double inverse_sqrt(const ScheduleNumbers& n, double t) {
  if (t < n[P::warmup]) return t / n[P::warmup];
  return 1 / std::sqrt((t + n[P::timescale] - n[P::warmup]) / n[P::timescale]);
}

double polynomial(const ScheduleNumbers& n, double t) {
  return warmed(n, t, [&](double progress) {
    return t > n[P::steps] ? n[P::min_lr] : power_decay(n, n[P::min_lr], std::min(progress, 1.0));
  });
}

double cosine_with_min_lr(const ScheduleNumbers& n, double t) {
  return warmed(n, t, [&](double progress) { return raised(wave(n[P::cycles], progress), floor_of(n)); });
}

double cosine_warmup_with_min_lr(const ScheduleNumbers& n, double t) {
  const double warmup = n[P::warmup], start = n[P::start_ratio];
  if (t < warmup) return start + (1 - start) * t / std::max(1.0, warmup - 1);
  const double progress = (t - warmup + 1) / std::max(1.0, n[P::steps] - warmup);
  return raised(wave(n[P::cycles], progress), floor_of(n));
}

double warmup_stable_decay(const ScheduleNumbers& n, double t) {
  const double warmup = n[P::warmup], decay_begins = warmup + n[P::stable], floor = n[P::min_ratio];
  if (t < warmup) {
    const double progress = t / warmup;
    if (n[P::warmup_type] == kCosineShape) return raised(0.5 * (1 - std::cos(std::numbers::pi * progress)), floor);
    return raised(n[P::warmup_type] == kLinearShape ? progress : 1 - std::sqrt(1 - progress), floor);
  }
  if (t < decay_begins) return 1;
  if (t >= decay_begins + n[P::decay]) return floor;
  const double progress = (t - decay_begins) / n[P::decay];
  if (n[P::decay_type] == kCosineShape) return raised(wave(n[P::cycles], progress), floor);
  return raised(n[P::decay_type] == kLinearShape ? 1 - progress : 1 - std::sqrt(progress), floor);
}

double sqrt_decay(const ScheduleNumbers& n, double t) {
  const double warmup = n[P::warmup];
  if (t < warmup) return t / warmup;
  const double level = warmup > 0 ? warmup : n[P::constant];
  return 1 / std::sqrt(std::max(level, t) / level);
}

double normal_decay(const ScheduleNumbers& n, double t) {
  const double warmup = n[P::warmup];
  const double deviation = t < warmup ? (t - warmup) * 2 / warmup : (t - warmup) / n[P::steps];
  return std::exp(-deviation * deviation);
}

double polynomial_decay(const ScheduleNumbers& n, double t) {
  return warmed(n, t, [&](double progress) { return power_decay(n, 0, std::min(progress, 1.0)); });
}

double polynomial_decay_layerwise(const ScheduleNumbers& n, double t) {
  const double steps = n[P::steps], warmup = n[P::warmup];
  // With `cycle` the decay starts again, over twice and three times the steps, as in TensorFlow's polynomial_decay.
  const double length = n[P::cycle] == 0 ? steps : steps * std::max(1.0, std::ceil(t / steps));
  const double rising = warmup > 0 ? std::min(1.0, t / warmup) : 1;
  return power_decay(n, n[P::min_lr], std::min(t, length) / length) * rising;
}

}  // namespace keel::schedules
