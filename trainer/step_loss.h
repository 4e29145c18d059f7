#pragma once
// A micro-batch's loss on its way into the engine, and to the host.

#include <vector>

#include "keel/dist/parallel/sharded.h"
#include "keel/tasks/loss.h"

namespace keel {

// The weight of all terms. Terms of different weights need totals over all ranks, which no step asks for yet: an Error
// of kind unsupported. So is a loss without a term.
double weight_of(const Loss& loss, const Batch& batch);

// Adds the gradients of a loss to those of the step. `last`: of the step's micro-batches.
void backward(Sharded& engine, const Loss& loss, const Batch& batch, bool last);

// The number, which may still be on its way from a device.
class StepLoss {
 public:
  StepLoss() = default;
  StepLoss(const Loss& loss, const Batch& batch);
  // Of a loss of one term.
  StepLoss(const Tensor& value, double factor, double weight);

  // That the loss is a mean over.
  double weight() const { return weight_; }
  // The sum over terms of factor * value; waits.
  double get() const;

 private:
  struct Term {
    HostCopy value;
    double factor = 1;
    bool is_sum = false;
  };
  std::vector<Term> terms_;
  double weight_ = 0;
};

}  // namespace keel
