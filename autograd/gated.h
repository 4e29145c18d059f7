#pragma once
// Differentiable gated activations.

#include "keel/autograd/record.h"
#include "keel/kernels/gated.h"

namespace keel {

// activation(gate) * up for x: (..., 2 cols) that packs [gate | up]; the result is (..., cols). One pass over memory,
// forward and backward, and x alone is saved.
Variable gated(const Variable& x, GateKind kind);

}  // namespace keel
