#pragma once
// Compares the gradients that backward gives with central differences, in double precision.

#include <functional>
#include <span>
#include <vector>

#include "keel/autograd/variable.h"

namespace keel {

struct GradcheckOptions {
  double step = 1e-6;       // of the central difference
  double tolerance = 1e-6;  // of |analytic - numeric| against 1 + |numeric|
};

// `function` maps the inputs (f64 leaves) to one output of any shape, which is weighted by fixed
// pseudo-random numbers so that no gradient cancels. Returns an empty string, or a description of the
// worst disagreement (input, element, both values).
std::string gradcheck(const std::function<Variable(std::span<const Variable>)>& function,
                      std::span<const Tensor> inputs, const GradcheckOptions& options = {});

}  // namespace keel
