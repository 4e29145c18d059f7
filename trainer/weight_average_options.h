#pragma once
// How weights are averaged; keel/trainer/weight_averages.h has the formulas.

#include <cstdint>

#include "keel/runtime/language.h"

namespace keel {

struct EmaOptions {
  double decay = 0.999;  // in (0, 1)
  bool warmup = true;
  bool evaluates = true;  // evaluations are of the average
  bool operator==(const EmaOptions&) const = default;
};

struct SwaOptions {
  std::int64_t start = 1, every = 1;  // steps, at least 1
  double rate_factor = 1;
  bool evaluates = false;  // evaluations after `start` are of the average
  bool operator==(const SwaOptions&) const = default;
};

}  // namespace keel
