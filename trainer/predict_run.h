#pragma once
// What a trained model says of each example of a file.

#include <cstdint>
#include <string>

#include "keel/trainer/trained_model.h"

namespace keel {

struct PredictOptions {
  std::string input, out;
  bool replaces = false;  // a file `out` that is there already
};

struct PredictedRun {
  std::int64_t examples = 0;
};

// Writes a line of JSON for each example of the input, in its order, at any number of ranks: see
// keel/tasks/predictions.h. The file appears when all is written. Every rank calls it; the first one writes, and keeps
// the lines of a round at a time, a batch of each rank. Input that is missing or malformed, and a file that cannot be
// written, are AgreedErrors before anything is computed.
PredictedRun predict_run(TrainedModel& trained, const PredictOptions& options);

}  // namespace keel
