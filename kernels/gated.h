#pragma once
// Gated activations: half of a projection, activated, times the other half, in one pass.

#include <string_view>

#include "keel/runtime/tensor.h"

namespace keel {

// SwiGLU, GeGLU (twice), ReGLU and GLU (Shazeer 2020; Dauphin et al. 2017).
enum class GateKind : unsigned char { silu, gelu, gelu_tanh, relu, sigmoid };
// "silu" and so on, as in kernels/functors.h.
std::string_view name_of(GateKind kind);

// out = activation(gate) * up, where a row of x is [gate | up].
struct GatedArgs {
  GateKind kind;
  Tensor x;    // (rows, 2 cols), rows dense
  Tensor out;  // (rows, cols), dense
};
struct GatedBackwardArgs {
  GateKind kind;
  Tensor grad_out;  // (rows, cols), rows dense
  Tensor x;         // (rows, 2 cols), rows dense
  Tensor grad_x;    // (rows, 2 cols), dense
};

namespace kernels {

// x: (..., 2 cols) -> (..., cols). 16-bit numbers are rounded once, at the end.
Tensor gated(const Tensor& x, GateKind kind);
// The gradient of x, packed as x is.
Tensor gated_backward(const Tensor& grad_out, const Tensor& x, GateKind kind);

}  // namespace kernels
}  // namespace keel
