#include "keel/kernels/newton_schulz.h"

#include "keel/kernels/elementwise.h"
#include "keel/kernels/matmul.h"
#include "keel/kernels/reduce.h"
#include "keel/runtime/error.h"

namespace keel::kernels {
namespace {

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315, kLeastNorm = 1e-7;

// x over its norm, dense.
Tensor normalised(const Tensor& x) {
  const DType wide = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor numbers = cast(x, wide);
  const Tensor norm = unary<Sqrt>(sum(unary<Square>(numbers)));
  const Tensor divisor = binary<Maximum>(norm, full(x.context(), {}, kLeastNorm, wide));
  return contiguous(cast(binary<Div>(numbers, divisor), x.dtype()));
}

// a x + (b A + c A A) x. A is made with b in it, so that one sum of two matrices is enough.
Tensor iterate(const Tensor& x) {
  const Tensor gram = matmul(x, x.transpose(0, 1), {.alpha = static_cast<float>(kB), .same_bits = true});
  const Tensor polynomial = matmul(gram, gram, {.alpha = static_cast<float>(kC / (kB * kB)), .same_bits = true});
  accumulate(polynomial, gram);
  const Tensor next = unary<MulScalar>(x, kA);
  matmul(polynomial, x, {.into = next, .accumulate = true, .same_bits = true});
  return next;
}

}  // namespace

Tensor newton_schulz(const Tensor& x, int steps) {
  KEEL_CHECK(x.defined() && x.rank() == 2 && is_floating(x.dtype()), "newton_schulz: expects a matrix, got ", x);
  if (x.numel() == 0) return clone(x);
  const bool tall = x.dim(0) > x.dim(1);
  Tensor result = normalised(tall ? x.transpose(0, 1) : x);
  for (int step = 0; step < steps; ++step) result = iterate(result);
  return tall ? contiguous(result.transpose(0, 1)) : result;
}

}  // namespace keel::kernels
