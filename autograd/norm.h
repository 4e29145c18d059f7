#pragma once
// Differentiable layer norm and RMS norm over the last dimension, alone or behind a residual addition.

#include "keel/autograd/record.h"
#include "keel/kernels/norm.h"

namespace keel {

// x: (..., cols); weight, bias: (cols); bias may be an empty Variable.
Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double epsilon = 1e-5);
Variable rms_norm(const Variable& x, const Variable& weight, double epsilon = 1e-6);

struct ResidualNorm {
  Variable sum;  // x + residual: the stream that goes on
  Variable out;  // norm(sum)
};
// One pass for what every pre-norm block does: add, then normalise.
ResidualNorm add_norm(NormKind kind, const Variable& x, const Variable& residual, const Variable& weight,
                      const Variable& bias, double epsilon);

}  // namespace keel
