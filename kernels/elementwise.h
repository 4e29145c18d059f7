#pragma once
// Elementwise operations on tensors: unary and binary functors, copy, cast, fill, where, dropout.
//
// Every function accepts any strides; binary ones broadcast by the usual rule (missing leading
// dimensions and extents of 1 repeat). Results are new dense tensors in the input's dtype unless
// said otherwise. bf16 and f16 are computed in fp32 and rounded once.

#include <array>
#include <cstdint>
#include <span>

#include "keel/kernels/functors.h"
#include "keel/runtime/random.h"
#include "keel/runtime/tensor.h"

namespace keel {

// `parameter` is the functor's number (exponent of pow, slope of leaky_relu, ...), unused by most.
struct UnaryEntry {
  void (*forward)(const Tensor& x, const Tensor& y, double parameter) = nullptr;
  // kept: the input or the output of forward, as the functor's `keep` says; ignored for Keep::none.
  void (*backward)(const Tensor& grad_output, const Tensor& kept, const Tensor& grad_input, double parameter) = nullptr;
};
struct BinaryEntry {
  void (*forward)(const Tensor& a, const Tensor& b, const Tensor& out) = nullptr;  // inputs already expanded
  // Gradient of one input (0 or 1) before any broadcast is undone; null for comparisons.
  void (*backward)(int input, const Tensor& grad_output, const Tensor& a, const Tensor& b,
                   const Tensor& grad_input) = nullptr;
};
using UnaryTable = std::array<UnaryEntry, static_cast<std::size_t>(UnaryOps::size)>;
using BinaryTable = std::array<BinaryEntry, static_cast<std::size_t>(BinaryOps::size)>;

namespace kernels {

// `op` is index_of<Gelu, UnaryOps> and the like. Integers are taken by the operations that is_integral_op names.
Tensor unary(int op, const Tensor& x, double parameter = 0);
Tensor unary_backward(int op, const Tensor& grad_output, const Tensor& kept, double parameter = 0);
// Comparisons give u8 tensors of 0 and 1. Both inputs have one dtype.
Tensor binary(int op, const Tensor& a, const Tensor& b);
// Shape of the broadcast result; reduce it with sum_to().
Tensor binary_backward(int op, int input, const Tensor& grad_output, const Tensor& a, const Tensor& b);

template <class Op>
Tensor unary(const Tensor& x, double parameter = 0) {
  return unary(index_of<Op, UnaryOps>, x, parameter);
}
template <class Op>
Tensor binary(const Tensor& a, const Tensor& b) {
  return binary(index_of<Op, BinaryOps>, a, b);
}

// The shape that a and b broadcast to; an Error when they do not.
Dims broadcast_shapes(const Dims& a, const Dims& b);

// Writes `from` (broadcast to `to`) into `to`, converting the dtype: to narrower floats by rounding to nearest
// even, to integers by cutting the fraction off (undefined where it does not fit). Views welcome on both sides;
// they must not overlap.
void copy_into(const Tensor& to, const Tensor& from);
Tensor cast(const Tensor& x, DType dtype);  // x itself when it already has the dtype
Tensor contiguous(const Tensor& x);         // x itself when it is dense
Tensor clone(const Tensor& x);              // always a dense copy
// In another context, dense; x itself where it already is there. See transfer() in keel/runtime/tensor.h.
Tensor to(const Tensor& x, const Context& context, Purpose purpose = Purpose::activation);
// copy_into() from any context. Dense tensors of one shape and dtype go straight there; others through a copy beside
// `to`, of `purpose`.
void copy_across(const Tensor& to, const Tensor& from, Purpose purpose = Purpose::activation);
void fill(const Tensor& out, double value);
Tensor full(const Context& context, const Dims& shape, double value, DType dtype = DType::f32);
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);  // condition: u8
// into += from, elementwise, equal shapes; dtypes may differ (sums are fp32 or wider).
void accumulate(const Tensor& into, const Tensor& from);
void scale(const Tensor& x, double factor);  // in place
// x *= factor / divisor in place, both of one element on x's device: factor f32 or f64, divisor i64 or undefined (1). A
// divisor of 0 gives zeros. Touches no number when the quotient is 1.
void scale_by(const Tensor& x, const Tensor& factor, const Tensor& divisor = {});
// i64 (count): first, first + 1, ...
Tensor arange(const Context& context, std::int64_t first, std::int64_t count);
// Dense concatenation along `dim`.
Tensor concat(std::span<const Tensor> parts, int dim);

// Zeroes each element with the given probability and scales the others by 1 / (1 - probability).
// The mask is a function of (key, sample id, position, channel) alone: see runtime/random.h.
// x: (samples, positions, channels); sample_ids: i64 (samples). Backward is the same call on the gradient.
Tensor dropout(const Tensor& x, double probability, const DropoutKey& key, const Tensor& sample_ids);

}  // namespace kernels

struct DropoutArgs {
  Tensor x, out;      // (samples, positions, channels), dense
  Tensor sample_ids;  // i64 (samples), global ids
  DropoutKey key;
  double probability;
};

}  // namespace keel
