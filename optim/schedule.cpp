#include "keel/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace keel {

double RateSchedule::factor(std::int64_t done) const {
  if (done < warmup) return static_cast<double>(done + 1) / static_cast<double>(warmup + 1);
  if (decay == Decay::constant) return 1;
  if (done >= steps) return final_factor;
  const double progress = static_cast<double>(done - warmup) / static_cast<double>(steps - warmup);
  const double remaining = decay == Decay::linear ? 1 - progress : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return final_factor + (1 - final_factor) * remaining;
}

}  // namespace keel
