#pragma once
// A loss that an optimizer evaluates by itself, several times in a step, at weights of its choice.

#include <vector>

#include "keel/runtime/tensor.h"

namespace keel {

// What is minimised. A vector is a list of flat dense tensors, f32 or f64, which hold this rank's part of it.
class Objective {
 public:
  virtual ~Objective() = default;
  // The loss at the weights as they are; gradient() is that at the same weights from then on.
  virtual double evaluate() = 0;
  virtual const std::vector<Tensor>& weights() = 0;
  virtual const std::vector<Tensor>& gradient() = 0;
  // The part of `x`, a vector shaped like the weights, that this rank contributes to sums: where several ranks hold an
  // element, one of them counts it.
  virtual std::vector<Tensor> counted(const std::vector<Tensor>& x) const { return x; }
  // The sum and the maximum over all ranks, in an order that is the same on each.
  virtual double sum(double mine) { return mine; }
  virtual double largest(double mine) { return mine; }
  // For a handler of what one of these functions threw: whether weights() may be written. Other ranks that do not know
  // of the exception could be reading them.
  virtual bool may_take_back() const { return true; }
};

// What a step found.
struct Minimised {
  double loss = 0;              // before the step, as evaluate() gave it first
  double largest_gradient = 0;  // element, before the step
  int iterations = 0, evaluations = 0;
};

}  // namespace keel
