#pragma once
// L-BFGS: steps along the direction that the last changes of the gradient suggest. Liu and Nocedal 1989, with the
// choices of PyTorch's LBFGS.
//
// A step evaluates the loss several times, so it takes the objective itself and not a gradient.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "keel/optim/objective.h"
#include "keel/optim/optimizer.h"

namespace keel {

struct LbfgsOptions {
  double lr = 1;                     // of the first step along a direction; 0: nothing moves
  int max_iterations = 20;           // directions in a step
  int max_evaluations = 0;           // in a step, which a search exceeds by one at most; 0: max_iterations * 5 / 4
  double tolerance_gradient = 1e-7;  // largest element of the gradient that ends a step
  double tolerance_change = 1e-9;    // of loss or weights that ends a step
  int history = 100;                 // changes of the gradient that are remembered
  bool strong_wolfe = false;         // search along each direction; else one evaluation each

  std::string problem() const;  // what is wrong with the options; empty: nothing
};

// What a step leaves to the next one. Every rank has the same scalars and its own part of the vectors, which have the
// shapes of the weights. Vectors that are missing are made when they are needed.
struct LbfgsState {
  struct Change {
    std::vector<Tensor> gradient, weights;  // their changes along one direction
    double inverse = 0;                     // 1 / (the dot product of the two)
  };
  std::vector<Change> changes;  // a ring, of which `remembered` count
  int oldest = 0, remembered = 0;
  std::vector<Tensor> direction, gradient;
  double step = 0;   // along the direction
  double scale = 1;  // of the inverse Hessian before the changes
  std::int64_t iterations = 0, evaluations = 0;
};

// One step. Throws an Error where a loss is not finite. Then, and where evaluate() throws, the weights are as before
// the move that led there, and the state is one to go on from.
Minimised lbfgs_step(Objective& objective, LbfgsState& state, const LbfgsOptions& options);

inline constexpr OptimizerRequirements kLbfgsRequirements = {
    .closure = true, .one_vector = true, .pure_gradient = true, .host_memory = true};

// The same as an optimizer, whose state is kept, sharded and saved like that of others: 2 * history + 2 numbers for
// each element, from the start. Throws an Error where the options make no sense.
std::unique_ptr<Optimizer> make_lbfgs(const LbfgsOptions& options = {});

}  // namespace keel
