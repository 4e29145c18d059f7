#pragma once
// The nearest orthogonal matrix, roughly, by products alone.

#include "keel/runtime/tensor.h"

namespace keel::kernels {

// Of x = U S V^T, (rows, columns), about U V^T: all singular values come near to 1, between about 0.7 and 1.2, those of
// a zero matrix stay 0. x is divided by its 2-norm (at least 1e-7), and then so many times
//   A = x x^T; x = a x + (b A + c A A) x, (a, b, c) = (3.4445, -4.7750, 2.0315),
// on the side on which A is smaller. Products are in x's dtype, by `same_bits` of MatmulOptions, so that every rank
// finds the same; norm and division are in fp32, or fp64 for f64. A new dense tensor. (Jordan et al. 2024; Newton and
// Schulz's iteration: Higham 2008, "Functions of matrices", section 5.3.)
Tensor newton_schulz(const Tensor& x, int steps = 5);

}  // namespace keel::kernels
