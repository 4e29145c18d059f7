#pragma once
// Floating-point operations of the products that a thread's graph asks for, forward and backward: what a model needs,
// not what a device does.

#include "keel/runtime/language.h"

namespace keel {

// While alive, adds up what operations on this thread count; scopes nest, and the innermost one counts.
//
// A product of (m, k) and (k, n) is 2 m n k, each pair of a query and a key that it sees 4 head_size, and backward as
// much again for each operand that needs a gradient. All else (look-ups in tables, norms, activations, sums) is
// nothing beside it and is left out. So is what is computed a second time: forward passes that checkpoint() repeats,
// and scores that the backward of an attention computes again.
class FlopCount {
 public:
  FlopCount();
  ~FlopCount();
  FlopCount(const FlopCount&) = delete;
  FlopCount& operator=(const FlopCount&) = delete;
  double flops() const { return flops_; }

 private:
  friend void count_flops(double flops);
  double flops_ = 0;
  FlopCount* outer_;
};

// For operations: of what they ask for now.
void count_flops(double flops);

}  // namespace keel
