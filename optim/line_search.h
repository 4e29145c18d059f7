#pragma once
// A step along a direction that satisfies the strong Wolfe conditions: the loss has come down far enough, and so has
// its slope. Nocedal and Wright 2006, algorithms 3.5 and 3.6, with cubic interpolation as PyTorch's LBFGS has it.

#include <functional>
#include <vector>

#include "keel/runtime/tensor.h"

namespace keel {

// The loss at weights + step * direction.
struct LinePoint {
  double step = 0;
  double loss = 0;
  double slope = 0;                   // by the step
  std::vector<Tensor> gradient = {};  // by the weights
};

struct WolfeOptions {
  double decrease = 1e-4;  // of what the slope at the start promises; c1
  double curvature = 0.9;  // the slope's part of that at the start; c2
  double shortest = 1e-9;  // change of any weight between the ends of a bracket that is worth a further look
  int most_trials = 25;    // after the first
};

struct LineSearch {
  LinePoint point;
  int evaluations = 0;
};

// Searches from `start`, whose step is 0 and whose slope must be negative. `first`, > 0, is the step that is tried
// first; `largest` is the largest magnitude in the direction. Where no trial satisfies the conditions, the result is
// the best one.
LineSearch strong_wolfe(const std::function<LinePoint(double step)>& at, const LinePoint& start, double first,
                        double largest, const WolfeOptions& options = {});

}  // namespace keel
