#include "keel/kernels/gated.h"

#include "keel/kernels/checks.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/gate_functors.h"
#include "keel/kernels/table.h"

namespace keel {

std::string_view name_of(GateKind kind) {
  return visit_gate(kind, [](auto tag) { return decltype(tag)::type::name; });
}

namespace kernels {
namespace {

// x's shape with half as many columns.
Dims half_of(const Tensor& x) {
  check_floating("gated", "x", x);
  KEEL_CHECK(x.rank() >= 1 && x.dim(-1) % 2 == 0,
             "gated: x packs [gate | up], so that its last dimension must be even, ", "got ", x);
  Dims shape = x.shape();
  shape[x.rank() - 1] /= 2;
  return shape;
}

}  // namespace

Tensor gated(const Tensor& x, GateKind kind) {
  const Tensor out = empty(x.context(), half_of(x), x.dtype());
  run_kernel(x.context(), "gated", kernel_table(x.context()).gated,
             GatedArgs{kind, as_rows("gated", contiguous(x)), as_rows("gated", out)});
  return out;
}

Tensor gated_backward(const Tensor& grad_out, const Tensor& x, GateKind kind) {
  check_tensor("gated", "grad_out", grad_out, half_of(x), x.dtype(), x.context());
  const Tensor grad_x = empty_like(x);
  run_kernel(x.context(), "gated_backward", kernel_table(x.context()).gated_backward,
             GatedBackwardArgs{kind, as_rows("gated", contiguous(grad_out)), as_rows("gated", contiguous(x)),
                               as_rows("gated", grad_x)});
  return grad_x;
}

}  // namespace kernels
}  // namespace keel
