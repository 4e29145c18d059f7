#include "keel/kernels/newton_schulz.h"

#include <algorithm>
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

// x and what its iterations write to.
class Iteration {
 public:
  explicit Iteration(const Tensor& x)
      : x_(normalised(x)),
        next_(buffer(x.shape())),
        gram_(buffer({least(), least()})),
        polynomial_(buffer({least(), least()})),
        diagonal_(polynomial_.storage(), {least()}, {least() + 1}, polynomial_.offset(), x.dtype()),
        slopes_(full(x.context(), {least()}, kA, x.dtype())) {}
  const Tensor& x() const { return x_; }

  // x = (a I + b A + c A A) x with A = x x^T, or x (a I + b A + c A A) with A = x^T x. A is made with b in it, so that
  // one sum of two matrices is enough.
  void advance() {
    const Tensor turned = x_.transpose(0, 1);
    multiply(is_tall() ? turned : x_, is_tall() ? x_ : turned, gram_, kB);
    multiply(gram_, gram_, polynomial_, kC / (kB * kB));
    accumulate(polynomial_, gram_);
    accumulate(diagonal_, slopes_);
    multiply(is_tall() ? x_ : polynomial_, is_tall() ? polynomial_ : x_, next_, 1);
    std::swap(x_, next_);
  }

 private:
  bool is_tall() const { return x_.dim(0) > x_.dim(1); }
  std::int64_t least() const { return std::min(x_.dim(0), x_.dim(1)); }
  Tensor buffer(const Dims& shape) const { return empty(x_.context(), shape, x_.dtype(), Purpose::workspace); }
  static void multiply(const Tensor& a, const Tensor& b, const Tensor& into, double alpha) {
    matmul(a, b, {.into = into, .alpha = static_cast<float>(alpha), .same_bits = true});
  }

  Tensor x_, next_, gram_, polynomial_, diagonal_, slopes_;
};

}  // namespace

Tensor newton_schulz(const Tensor& x, int steps) {
  KEEL_CHECK(x.defined() && x.rank() == 2 && is_floating(x.dtype()), "newton_schulz: expects a matrix, got ", x);
  if (x.numel() == 0) return clone(x);
  Iteration iteration(x);
  for (int step = 0; step < steps; ++step) iteration.advance();
  return iteration.x();
}

}  // namespace keel::kernels
