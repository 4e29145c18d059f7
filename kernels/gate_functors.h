#pragma once
// The activation of each kind of gate, from the list of elementwise operations, and what both halves get back.

#include "keel/kernels/functors.h"
#include "keel/kernels/gated.h"
#include "keel/runtime/dtype.h"

namespace keel {

// Calls f(TypeTag<Op>{}) with the functor of a kind.
template <class F>
decltype(auto) visit_gate(GateKind kind, F&& f) {
  switch (kind) {
    case GateKind::silu: return f(TypeTag<Silu>{});
    case GateKind::gelu: return f(TypeTag<Gelu>{});
    case GateKind::gelu_tanh: return f(TypeTag<GeluTanh>{});
    case GateKind::relu: return f(TypeTag<Relu>{});
    default: return f(TypeTag<Sigmoid>{});
  }
}

template <class T>
struct GateGradients {
  T gate, up;
};
// Of activation(gate) * up. Math is Op, or a second formula of it.
template <class Op, class Math, class T>
KEEL_HD GateGradients<T> gate_gradients(const Math& math, T grad, T gate, T up) {
  const T value = math.forward(gate);
  return {math.backward(grad * up, Op::keep == Keep::output ? value : gate), grad * value};
}

}  // namespace keel
