#pragma once
// Differentiable matrix products: plain, and the linear layer with its bias and GELU fused.

#include "keel/autograd/record.h"

namespace keel {

// a: (batch..., m, k), b: (batch..., k, n); see kernels::matmul.
Variable matmul(const Variable& a, const Variable& b);

// x weight^T + bias for x: (..., in), weight: (out, in), bias: (out) or an empty Variable.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias);
// gelu_tanh(linear(x, weight, bias)); the value before GELU is kept for backward.
Variable linear_gelu(const Variable& x, const Variable& weight, const Variable& bias);

}  // namespace keel
