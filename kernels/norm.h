#pragma once
// Layer norm and RMS norm over the last dimension, with the residual addition fused in front.

#include "keel/runtime/tensor.h"

namespace keel {

enum class NormKind : unsigned char { layer, rms };

// out = norm(x + residual) * weight + bias. Layer norm: Ba et al. 2016; RMS norm: Zhang and Sennrich 2019.
struct NormArgs {
  NormKind kind;
  Tensor x;             // (rows, cols), dense
  Tensor residual;      // optional, shaped like x
  Tensor weight, bias;  // (cols), x's dtype; bias optional, never with rms
  double epsilon;
  Tensor sum;         // with residual: x + residual, rounded to x's dtype, then normalised
  Tensor out;         // (rows, cols)
  Tensor mean, rstd;  // f32 (f64 for f64) (rows); mean undefined for rms
};
struct NormBackwardArgs {
  NormKind kind;
  Tensor grad_output;  // (rows, cols)
  Tensor grad_sum;     // optional: gradient that reached `sum` by the residual path; added
  Tensor x;            // what was normalised (x, or sum)
  Tensor weight, mean, rstd;
  Tensor grad_x;                              // (rows, cols)
  Tensor grad_weight, grad_bias;              // (cols), f32 or x's dtype, each optional
  bool add_weight = false, add_bias = false;  // add to what the destination holds
};

namespace kernels {

struct NormResult {
  Tensor out;
  Tensor sum;  // x + residual, or x itself without a residual
  Tensor mean, rstd;
};
// x: (..., cols).
NormResult norm(NormKind kind, const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                double epsilon);
// Allocates grad_x when it is undefined; parameter gradients are written where the arguments say.
// Column sums run over fixed row chunks, added in order: no atomics.
Tensor norm_backward(NormBackwardArgs args);

}  // namespace kernels
}  // namespace keel
