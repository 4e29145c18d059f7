#pragma once
// Loss curves of several seeds as one: means, spread, and when a loss is reached.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "keel/trainer/loss_curves.h"

namespace keel {

// A mean over seeds. `deviation` is the standard deviation of n seeds, with the divisor n - 1; 0 of one seed.
struct MeanOfSeeds {
  double mean = 0, deviation = 0;
};
MeanOfSeeds mean_of_seeds(std::span<const double> values);

// Bytes and seconds are means over seeds.
struct MeanPoint {
  std::int64_t step = 0;
  MeanOfSeeds loss = {};
  double bytes = 0, seconds = 0;
  std::optional<MeanOfSeeds> validation_loss = {};  // where all seeds have one
};

struct MeanCurve {
  std::string variant;
  std::int64_t seeds = 0;
  std::vector<MeanPoint> points = {};
  MeanOfSeeds final_loss = {};  // of each seed's running mean after the last step
};

// A curve for each variant, in the order of their first ones. An Error where two of a variant have different steps.
std::vector<MeanCurve> mean_curves(std::span<const LossCurve> curves);

// Steps of a running mean: the last ones, or all of a shorter curve.
inline constexpr std::int64_t kRunningSteps = 10;

// The first point at which the mean of the losses of the last kRunningSteps steps is below `loss`, each the mean over
// seeds; null: there is none.
const MeanPoint* first_below(const MeanCurve& curve, double loss);

}  // namespace keel
