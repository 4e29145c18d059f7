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

// Every rank calls it and evaluates its share of the batches. All get the same report, whatever their number. The
// caller fills in the report's `step` and `seconds`.
EvalReport evaluate(const Gpt& model, const Loader& loader, const EvaluationOptions& options, Communicator& ranks);

}  // namespace keel
