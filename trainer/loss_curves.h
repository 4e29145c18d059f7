#pragma once
// The loss of trainings over their steps, with what each step has cost: bytes and seconds.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/comm/link.h"
#include "keel/trainer/config.h"
#include "keel/trainer/progress.h"
#include "keel/trainer/skipped_of_training.h"

namespace keel {

// After a step.
struct LossPoint {
  std::int64_t step = 0;                       // counted from 1
  double loss = 0;                             // of the step, as StepReport::loss
  std::int64_t bytes = 0;                      // that the first rank has sent, from the beginning, without evaluations
  double seconds = 0;                          // of the first rank, likewise
  std::optional<double> validation_loss = {};  // where the step has an evaluation, and that a finite one
  bool operator==(const LossPoint&) const = default;
};

struct LossCurve {
  std::string variant;
  std::uint64_t seed = 0;
  std::vector<LossPoint> points = {};  // one for each step
  SkippedOfTraining skipped = {};
  bool operator==(const LossCurve&) const = default;
};

// A training of which there is to be a curve.
struct CurveWish {
  std::string variant;
  std::uint64_t seed = 0;
  Config config;  // that has the seed
};

// Trains each, so many steps, with the evaluations that its configuration asks for and one at the end, and without
// files. The losses are those of train() with the same configuration. A point waits for the weights that its step
// gathers, so that its bytes are exact; its seconds are therefore without the overlap of that gathering with the next
// step. Every rank calls it; the first one's curves have its bytes and seconds. Errors: see train().
std::vector<LossCurve> train_curves(std::span<const CurveWish> wishes, std::int64_t steps, const Network& network,
                                    TrainObserver& observer, Communicator& ranks);

}  // namespace keel
