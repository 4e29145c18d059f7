#include "keel/kernels/newton_schulz.h"

#include <utility>

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

// What one iteration after the other writes to: A, the polynomial, and x in turn.
struct Buffers {
  Tensor gram, polynomial, diagonal, next, slopes;

  explicit Buffers(const Tensor& x)
      : gram(empty(x.context(), {x.dim(0), x.dim(0)}, x.dtype(), Purpose::workspace)),
        polynomial(empty(x.context(), {x.dim(0), x.dim(0)}, x.dtype(), Purpose::workspace)),
        diagonal(polynomial.storage(), {x.dim(0)}, {x.dim(0) + 1}, polynomial.offset(), x.dtype()),
        next(empty(x.context(), x.shape(), x.dtype(), Purpose::workspace)),
        slopes(full(x.context(), {x.dim(0)}, kA, x.dtype())) {}
};

// (a I + b A + c A A) x, which changes places with x. A is made with b in it, so that one sum of two matrices is
// enough.
void iterate(Tensor& x, Buffers& buffers) {
  matmul(x, x.transpose(0, 1), {.into = buffers.gram, .alpha = static_cast<float>(kB), .same_bits = true});
  matmul(buffers.gram, buffers.gram,
         {.into = buffers.polynomial, .alpha = static_cast<float>(kC / (kB * kB)), .same_bits = true});
  accumulate(buffers.polynomial, buffers.gram);
  accumulate(buffers.diagonal, buffers.slopes);
  matmul(buffers.polynomial, x, {.into = buffers.next, .same_bits = true});
  std::swap(x, buffers.next);
}

}  // namespace

Tensor newton_schulz(const Tensor& x, int steps) {
  KEEL_CHECK(x.defined() && x.rank() == 2 && is_floating(x.dtype()), "newton_schulz: expects a matrix, got ", x);
  if (x.numel() == 0) return clone(x);
  const bool tall = x.dim(0) > x.dim(1);
  Tensor result = normalised(tall ? x.transpose(0, 1) : x);
  Buffers buffers(result);
  for (int step = 0; step < steps; ++step) iterate(result, buffers);
  return tall ? contiguous(result.transpose(0, 1)) : result;
}

}  // namespace keel::kernels
