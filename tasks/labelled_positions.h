#pragma once
// Validation of tasks whose labels are few: logits of the labelled positions alone.

#include <cstdint>

#include "keel/data/batch.h"
#include "keel/tasks/metric.h"
#include "keel/tasks/metrics/catalog.h"

namespace keel {

// Where the batch's labels are not -100.
struct LabelledPositions {
  // i64 (n), on the batch's device: numbers in (rows, time), and their labels. Without any: position 0 and -100, so
  // that the pass can be made all the same.
  Tensor positions, labels;
};
LabelledPositions labelled_positions(const Batch& batch);

// Feeds "loss" and the others of the list. `logits`: floating (n, classes), of these positions.
void feed_labelled(Metrics& metrics, const MetricList& list, const Tensor& logits, const LabelledPositions& at,
                   const Batch& batch);

}  // namespace keel
