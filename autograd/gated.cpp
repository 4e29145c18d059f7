#include "keel/autograd/gated.h"

namespace keel {

Variable gated(const Variable& x, GateKind kind) {
  return record("gated", kernels::gated(x.value(), kind), {x}, {x.value()},
                [kind](const Saved& saved, std::span<const Tensor> grad, const Need&) -> Gradients {
                  return {kernels::gated_backward(grad[0], saved[0], kind)};
                });
}

}  // namespace keel
