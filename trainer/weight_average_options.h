#pragma once
// How weights are averaged; keel/trainer/weight_averages.h has the formulas.

#include "keel/runtime/language.h"
#include "keel/trainer/length.h"

namespace keel {

struct EmaOptions {
  double decay = 0.999;  // in (0, 1)
  bool warmup = true;
  bool evaluates = true;  // evaluations are of the average
  bool operator==(const EmaOptions&) const = default;
};

struct SwaOptions {
  Length start = 1, every = 1;  // at least a step
  double rate_factor = 1;
  bool evaluates = false;  // evaluations after `start` are of the average
  bool operator==(const SwaOptions&) const = default;
};

}  // namespace keel
