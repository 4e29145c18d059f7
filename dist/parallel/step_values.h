#pragma once
// What an engine is told of the losses of a step, and what it tells of the step.

#include <concepts>
#include <cstdint>
#include <functional>
#include <string>

#include "keel/autograd/variable.h"

namespace keel {

// How much a loss is a mean over on this rank: a count of tokens, rows or pairs, or a sum of sample weights.
class LossWeight {
 public:
  constexpr LossWeight(std::integral auto count) : value_(static_cast<double>(count)) {}
  constexpr LossWeight(double sum) : value_(sum) {}
  constexpr operator double() const { return value_; }

 private:
  double value_;
};

// A term of a loss, of one element, and the factor with which its gradient counts.
struct WeightedLoss {
  Variable value;
  double factor = 1;
};

// What backward() must know of a loss.
struct BackwardOptions {
  LossWeight weight = 1;  // finite, and at least 0
  bool last = true;       // of the micro-batches of this step, or of the virtual rank that computes
};

struct StepResult {
  bool taken = false;            // false: a gradient was not finite, or nothing had weight; and nothing has changed
  std::int64_t steps_taken = 0;  // by then
  double lr = 0;
  double grad_norm = 0;        // 2-norm of the mean gradient before clipping, in fp64
  double weight = 0;           // of all ranks
  double loss_scale = 1;       // of the next step
  std::string first_bad = {};  // the first parameter whose gradient was not finite
  int evaluations = 1;         // of the loss and its gradient
};

// Runs forward and backward() of all micro-batches of a step, and returns the mean loss over this rank's weight:
// anything where it has none. Each call in a step must give the same at the same weights.
using Closure = std::function<double()>;

}  // namespace keel
