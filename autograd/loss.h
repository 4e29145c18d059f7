#pragma once
// Differentiable softmax, log-softmax and cross-entropy.

#include "keel/autograd/record.h"
#include "keel/kernels/loss.h"

namespace keel {

Variable softmax(const Variable& x);      // over the last dimension
Variable log_softmax(const Variable& x);  // over the last dimension

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  // Writes the gradient over the logits, which saves their size in memory; the logits' numbers are gone then.
  bool overwrite_logits = false;
};
struct CrossEntropyLoss {
  Variable loss;  // scalar: mean over the targets that are not ignored
  Tensor count;   // i64 scalar on the device: how many those are
};
// logits: (..., classes); targets: i32 or i64 (...), which have no gradient.
CrossEntropyLoss cross_entropy(const Variable& logits, const Tensor& targets, const CrossEntropyOptions& options = {});

// Mean of squared differences.
Variable mse_loss(const Variable& prediction, const Variable& target);

}  // namespace keel
