#pragma once
// Where numbers stopped being finite: the first bad tensor of a forward pass.

#include <string>

#include "keel/nn/module.h"
#include "keel/tasks/loss.h"

namespace keel {

// "weight h.0.ln_1.bias" or "output of layer_norm in h.3"; empty when everything is finite. Repeats the forward
// pass of a training batch, with the same dropout.
std::string first_bad_tensor(Module& model, const LossFunction& loss, const Batch& batch, Forward pass);

}  // namespace keel
