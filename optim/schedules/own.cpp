// keel's own schedules, and shapes that several share.

#include <cmath>
#include <numbers>

#include "keel/optim/schedules/formulas.h"

namespace keel::schedules {
namespace {

using P = ScheduleParameter;

// After the warm-up to 1, from 1 down to the end that step `steps` reaches; remaining(progress) falls from 1 to 0.
template <class Remaining>
double own_decay(const ScheduleNumbers& n, double t, const Remaining& remaining) {
  const double warmup = n[P::warmup], end = n[P::min_lr];
  if (t < warmup) return (t + 1) / (warmup + 1);
  if (t >= n[P::steps]) return end;
  return end + (1 - end) * remaining((t - warmup) / (n[P::steps] - warmup));
}

}  // namespace

double half_cosine(double progress) { return 0.5 * (1 + std::cos(std::numbers::pi * progress)); }

double triangle(double t, double up, double down) {
  const double position = std::fmod(t, up + down);
  return position <= up ? position / up : (up + down - position) / down;
}

double constant(const ScheduleNumbers& n, double t) {
  const double warmup = n[P::warmup];
  return t < warmup ? (t + 1) / (warmup + 1) : 1;
}
double linear(const ScheduleNumbers& n, double t) {
  return own_decay(n, t, [](double progress) { return 1 - progress; });
}
double cosine(const ScheduleNumbers& n, double t) { return own_decay(n, t, half_cosine); }

}  // namespace keel::schedules
