#pragma once
// Evaluation: loss and exact match on held-out data, without gradients.

#include "keel/data/batch.h"
#include "keel/dist/comm/communicator.h"
#include "keel/nn/models/gpt.h"
#include "keel/trainer/progress.h"

namespace keel {

struct EvaluationOptions {
  std::int64_t batches = 0;  // of the loader, from its first
  bool answers = false;      // also the fraction of rows whose every target is the likeliest token
};

// Every rank calls it, and takes its turn of the batches; all get the same report, whatever their number. `step` and
// `seconds` of it are left to the caller.
EvalReport evaluate(const Gpt& model, const Loader& loader, const EvaluationOptions& options, Communicator& ranks);

}  // namespace keel
