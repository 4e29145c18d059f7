#pragma once
// Differentiable matrix products: plain, and the linear layer with its bias and GELU fused, or with products of low
// rank added to its outputs.

#include <cstdint>
#include <span>

#include "keel/autograd/record.h"

namespace keel {

// a: (batch..., m, k), b: (batch..., k, n); see kernels::matmul.
Variable matmul(const Variable& a, const Variable& b);

// x weight^T + bias for x: (..., in), weight: (out, in), bias: (out) or an empty Variable.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias);
// gelu_tanh(linear(x, weight, bias)); the value before GELU is kept for backward.
Variable linear_gelu(const Variable& x, const Variable& weight, const Variable& bias);

// scale b a x, added to outputs [first_row, first_row + rows) of a linear layer.
struct LowRankTerm {
  Variable a;  // (rank, in)
  Variable b;  // (rows, rank)
  double scale = 1;
  std::int64_t first_row = 0;
  Variable x = {};  // (..., in), with as many rows as the layer's, such as that with dropout; empty: the layer's
};
// linear() with such terms (Hu et al. 2021). They are added where the product lies, without a pass over it.
Variable linear_low_rank(const Variable& x, const Variable& weight, const Variable& bias,
                         std::span<const LowRankTerm> terms);

}  // namespace keel
