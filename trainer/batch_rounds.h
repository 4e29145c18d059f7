#pragma once
// Batches that ranks answer without gradients: metrics of an evaluation, predictions.

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "keel/data/batch.h"
#include "keel/dist/comm/communicator.h"
#include "keel/nn/module.h"

namespace keel {

// Shares the first `batches` of the source out among the ranks, whole ones, in rounds. `answer` says in bytes what
// comes of a batch, which is on `device`; `take` gets what has come of a round, in the order of batches, on every rank.
// Ranks may gather weights from each other in a forward pass, so all have as many: one without a batch repeats the last
// one, and its answer is dropped. A file that was cut is an AgreedError. Every rank calls it.
void answer_in_rounds(const BatchSource& source, std::int64_t batches, const Context& device, DType dtype,
                      Communicator& ranks, const std::function<std::string(const Batch& batch, Forward& pass)>& answer,
                      const std::function<void(std::span<const std::string> answers)>& take);

}  // namespace keel
