#include "keel/tasks/labelled_positions.h"

#include <vector>

#include "keel/autograd/loss.h"
#include "keel/data/token_batch.h"
#include "keel/tasks/metrics/values.h"

namespace keel {

LabelledPositions labelled_positions(const Batch& batch) {
  const std::vector<std::int64_t> all = whole_values(batch[kLabels]);
  std::vector<std::int64_t> positions, labels;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] == kIgnoreTarget) continue;
    positions.push_back(static_cast<std::int64_t>(i));
    labels.push_back(all[i]);
  }
  if (positions.empty()) {
    positions.push_back(0);
    labels.push_back(kIgnoreTarget);
  }
  const Context& context = batch[kInputIds].context();
  const Dims shape = {std::ssize(positions)};
  return {from_values(context, positions, shape), from_values(context, labels, shape)};
}

void feed_labelled(Metrics& metrics, const MetricList& list, const Tensor& logits, const LabelledPositions& at,
                   const Batch& batch) {
  const CrossEntropyLoss loss = cross_entropy(Variable(logits), at.labels);
  metrics.at<MeanMetric>("loss").update(loss.loss.value().item(), batch.weight(kTokenWeight));
  list.feed(metrics, {.outputs = logits, .targets = at.labels, .examples = {}});
}

}  // namespace keel
