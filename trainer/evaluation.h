#pragma once
// Evaluation: metrics over held-out data, without gradients, the same at any number of ranks.

#include <functional>

#include "keel/data/batch.h"
#include "keel/dist/comm/communicator.h"
#include "keel/nn/module.h"
#include "keel/tasks/metric.h"

namespace keel {

// Feeds the metrics with a batch, which is on `device`.
using ValidationFunction = std::function<void(const Batch& batch, Forward& pass, Metrics& metrics)>;

// Every rank calls it, with metrics of the same names and kinds, and evaluates its share of the first `batches` of the
// source, in forward passes of this dtype. Whole batches are shared out; what each adds is joined in the order of
// batches. So all ranks have the same results, whatever their number. Forward passes are as many on every rank: one
// without a batch repeats the last. A file that was cut is an Error on all ranks.
void evaluate(const BatchSource& source, std::int64_t batches, const Context& device, DType dtype,
              const ValidationFunction& validate, Metrics& metrics, Communicator& ranks);

}  // namespace keel
