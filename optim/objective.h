#pragma once
// A loss that an optimizer evaluates by itself, several times in a step, at weights of its choice.

#include <vector>

#include "keel/runtime/tensor.h"

namespace keel {

// What is minimised. A vector is a list of flat dense tensors: of f32 or f64, of this rank's part of the problem.
class Objective {
 public:
  virtual ~Objective() = default;
  // The loss at the weights as they are; gradient() is that at the same weights from then on.
  virtual double evaluate() = 0;
  virtual const std::vector<Tensor>& weights() = 0;
  virtual const std::vector<Tensor>& gradient() = 0;
  // Of a vector like the weights, what this rank adds to sums. Ranks may hold the same numbers; one of them counts
  // each.
  virtual std::vector<Tensor> counted(const std::vector<Tensor>& x) const { return x; }
  // Over all ranks, in an order that is the same on each.
  virtual double sum(double mine) { return mine; }
  virtual double largest(double mine) { return mine; }
  // In a handler of what one of these has thrown: whether weights() may be written. Other ranks, who do not know of it,
  // could be reading them.
  virtual bool may_take_back() const { return true; }
};

// What a step found.
struct Minimised {
  double loss = 0;              // before the step, as evaluate() gave it first
  double largest_gradient = 0;  // element, before the step
  int iterations = 0, evaluations = 0;
};

}  // namespace keel
