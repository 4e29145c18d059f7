#pragma once
// L-BFGS: steps along the direction that the last changes of the gradient suggest. Liu and Nocedal 1989, with the
// choices of PyTorch's LBFGS.
//
// A step evaluates the loss several times, so that it takes the problem itself and not a gradient.

#include <deque>
#include <string>
#include <vector>

#include "keel/runtime/tensor.h"

namespace keel {

struct LbfgsOptions {
  double lr = 1;                     // of the first step along a direction
  int max_iterations = 20;           // directions in a step
  int max_evaluations = 0;           // in a step; 0: max_iterations * 5 / 4
  double tolerance_gradient = 1e-7;  // largest element of the gradient that ends a step
  double tolerance_change = 1e-9;    // of loss or weights that ends a step
  int history = 100;                 // changes of the gradient that are remembered
  bool strong_wolfe = false;         // search along each direction; else one evaluation each

  std::string problem() const;  // what is wrong with the options; empty: nothing
};

// What is minimised. Weights and gradients are flat dense tensors of f32 or f64, of this rank's part of the problem.
class LbfgsProblem {
 public:
  virtual ~LbfgsProblem() = default;
  // The loss at the weights as they are; gradient() is that at the same weights from then on.
  virtual double evaluate() = 0;
  virtual const std::vector<Tensor>& weights() = 0;
  virtual const std::vector<Tensor>& gradient() = 0;
  // Over all ranks, in an order that is the same on each.
  virtual double sum(double mine) { return mine; }
  virtual double largest(double mine) { return mine; }
};

// What a step leaves to the next one. Every rank has the same scalars, and its part of the vectors.
struct LbfgsState {
  struct Change {
    std::vector<Tensor> gradient, weights;  // by which one direction changed them
    double inverse = 0;                     // of their product
  };
  std::deque<Change> changes;  // the oldest first
  std::vector<Tensor> direction, gradient;
  double step = 0;   // along the direction
  double scale = 1;  // of the inverse Hessian before the changes
  std::int64_t iterations = 0, evaluations = 0;
};

struct LbfgsResult {
  double loss = 0;              // before the step, as evaluate() gave it first
  double largest_gradient = 0;  // element, before the step
  int iterations = 0, evaluations = 0;
};

// One step. An Error where a loss is not finite; the weights are then as before the move that led there, as they are
// where evaluate() throws.
LbfgsResult lbfgs_step(LbfgsProblem& problem, LbfgsState& state, const LbfgsOptions& options);

}  // namespace keel
