#pragma once
// Differentiable elementwise operations. Binary ones broadcast; the engine sums gradients back.

#include "keel/autograd/record.h"
#include "keel/kernels/elementwise.h"

namespace keel {

// The op number of UnaryOps or BinaryOps; `parameter` as in kernels/elementwise.h.
Variable unary(int op, const Variable& x, double parameter = 0);
Variable binary(int op, const Variable& a, const Variable& b);

template <class Op>
Variable unary(const Variable& x, double parameter = 0) {
  return unary(index_of<Op, UnaryOps>, x, parameter);
}
template <class Op>
Variable binary(const Variable& a, const Variable& b) {
  return binary(index_of<Op, BinaryOps>, a, b);
}

// Addition needs nothing from its inputs, so nothing is kept alive for it.
template <>
Variable binary<Add>(const Variable& a, const Variable& b);

// One function for each operation of the lists (kernels/functors.h); comparisons have no gradient and are kernels
// alone.
inline Variable neg(const Variable& x) { return unary<Neg>(x); }
inline Variable exp(const Variable& x) { return unary<Exp>(x); }
inline Variable log(const Variable& x) { return unary<Log>(x); }
inline Variable sqrt(const Variable& x) { return unary<Sqrt>(x); }
inline Variable rsqrt(const Variable& x) { return unary<Rsqrt>(x); }
inline Variable reciprocal(const Variable& x) { return unary<Reciprocal>(x); }
inline Variable abs(const Variable& x) { return unary<Abs>(x); }
inline Variable sign(const Variable& x) { return unary<Sign>(x); }    // its derivative counts as 0 everywhere
inline Variable floor(const Variable& x) { return unary<Floor>(x); }  // likewise
inline Variable square(const Variable& x) { return unary<Square>(x); }
inline Variable sigmoid(const Variable& x) { return unary<Sigmoid>(x); }
inline Variable tanh(const Variable& x) { return unary<Tanh>(x); }
inline Variable relu(const Variable& x) { return unary<Relu>(x); }
inline Variable leaky_relu(const Variable& x, double slope = 0.01) { return unary<LeakyRelu>(x, slope); }
inline Variable elu(const Variable& x) { return unary<Elu>(x); }
inline Variable softplus(const Variable& x) { return unary<Softplus>(x); }
inline Variable gelu(const Variable& x) { return unary<Gelu>(x); }           // exact, by erf
inline Variable gelu_tanh(const Variable& x) { return unary<GeluTanh>(x); }  // the approximation that GPT-2 uses
inline Variable silu(const Variable& x) { return unary<Silu>(x); }
inline Variable pow(const Variable& x, double exponent) { return unary<PowScalar>(x, exponent); }
inline Variable shift(const Variable& x, double summand) { return unary<AddScalar>(x, summand); }
inline Variable scale(const Variable& x, double factor) { return unary<MulScalar>(x, factor); }

inline Variable add(const Variable& a, const Variable& b) { return binary<Add>(a, b); }
inline Variable sub(const Variable& a, const Variable& b) { return binary<Sub>(a, b); }
inline Variable mul(const Variable& a, const Variable& b) { return binary<Mul>(a, b); }
inline Variable div(const Variable& a, const Variable& b) { return binary<Div>(a, b); }
inline Variable maximum(const Variable& a, const Variable& b) { return binary<Maximum>(a, b); }
inline Variable pow(const Variable& a, const Variable& b) { return binary<Pow>(a, b); }
inline Variable minimum(const Variable& a, const Variable& b) { return binary<Minimum>(a, b); }

// condition: u8, broadcast like a and b; it has no gradient.
Variable where(const Tensor& condition, const Variable& a, const Variable& b);
Variable cast(const Variable& x, DType dtype);
// See kernels::dropout. x: (samples, positions, channels).
Variable dropout(const Variable& x, double probability, const DropoutKey& key, const Tensor& sample_ids);

}  // namespace keel
