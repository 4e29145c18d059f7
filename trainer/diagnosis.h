#pragma once
// Where numbers stopped being finite: the first bad tensor of a forward pass.

#include <string>

#include "keel/data/batch.h"
#include "keel/nn/models/gpt.h"

namespace keel {

// "weight h.0.ln_1.bias" or "output of layer_norm in h.3"; empty when everything is finite. Repeats the forward
// pass of a training batch, with the same dropout.
std::string first_bad_tensor(Gpt& model, const Batch& batch, const RandomStream& random);

}  // namespace keel
