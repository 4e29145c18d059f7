#pragma once
// The engine: runs recorded operations backward, in an order that every rank agrees on.

#include <functional>
#include <span>
#include <vector>

#include "keel/autograd/record.h"

namespace keel {

// One run of the engine, as ready hooks see it.
class BackwardPass {
 public:
  // Runs `callback` after the last gradient of this pass, in order of registration.
  void at_end(std::function<void()> callback) { callbacks_.push_back(std::move(callback)); }

 private:
  friend void run_backward(std::span<const Variable>, std::span<const Tensor>, bool);
  std::vector<std::function<void()>> callbacks_;
};

// Adds d(loss)/d(leaf) * seed to the gradient of every leaf that the loss depends on. `loss` has one
// element. The graph is consumed: a second backward through it is an Error, as is a derivative of a
// derivative.
void backward(const Variable& loss, double seed = 1);
// The same from several outputs with given gradients, shaped like the outputs.
void backward(std::span<const Variable> outputs, std::span<const Tensor> gradients);

// The part shared with checkpoint(): a nested run adds to leaves but fires no hooks, since the
// enclosing pass will.
void run_backward(std::span<const Variable> outputs, std::span<const Tensor> gradients, bool nested);

}  // namespace keel
