#include "keel/dist/lab/busy_work.h"

#include <algorithm>
#include <chrono>

namespace keel::lab {
namespace {

void spin(std::int64_t rounds) {
  volatile double kept = 0;
  double sum = 1;
  for (std::int64_t i = 0; i < rounds; ++i) sum = sum * 0.999 + 1;
  kept = sum;
  static_cast<void>(kept);
}

// The fastest of some measurements: the others were disturbed.
double rounds_per_microsecond() {
  constexpr std::int64_t kRounds = 20'000;
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    spin(kRounds);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(kRounds) / std::max(took.count(), 1e-3));
  }
  return best;
}

}  // namespace

BusyWork::BusyWork(double microseconds)
    : rounds_(std::max<std::int64_t>(1, static_cast<std::int64_t>(microseconds * rounds_per_microsecond()))) {}

void BusyWork::run() const { spin(rounds_); }

}  // namespace keel::lab
