#pragma once
// Evaluation: metrics over held-out data, without gradients, the same at any number of ranks.

#include <cstdint>
#include <functional>
#include <vector>

#include "keel/data/batch.h"
#include "keel/dist/comm/communicator.h"
#include "keel/nn/module.h"
#include "keel/tasks/metric.h"
#include "keel/tasks/task.h"
#include "keel/trainer/batch_limit.h"

namespace keel {

// Feeds the metrics with a batch, which is on `device`.
using ValidationFunction = std::function<void(const Batch& batch, Forward& pass, Metrics& metrics)>;

// Every rank calls it, with metrics of the same names and kinds, and evaluates its share of the first `batches` of the
// source, in forward passes of this dtype (keel/trainer/batch_rounds.h). What each batch adds is joined in the order of
// batches. So all ranks have the same results, whatever their number. A file that was cut is an Error on all ranks.
void evaluate(const BatchSource& source, std::int64_t batches, const Context& device, DType dtype,
              const ValidationFunction& validate, Metrics& metrics, Communicator& ranks);

// What the metrics of a set have come to, by the names that records have: "validation_loss" and "accuracy" of a set
// without a name, else "SET/loss" and "SET/accuracy".
std::vector<NamedNumber> named_values(const Metrics& metrics, std::string_view set);

// Batches of the set that an evaluation takes: the first ones, up to its limit.
std::int64_t batches_of(const ValidationSet& set, const BatchLimits& limits);

// The metrics of a task on so many batches of a set, by the names that records have. Every rank calls it.
std::vector<NamedNumber> evaluate_set(TaskBase& task, const ValidationSet& set, std::int64_t batches,
                                      const Context& device, DType dtype, Communicator& ranks);

}  // namespace keel
