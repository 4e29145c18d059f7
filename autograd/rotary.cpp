#include "keel/autograd/rotary.h"

#include "keel/autograd/parameter_gradient.h"

namespace keel {
namespace {

RotaryArgs rotary_args(const Tensor& x, const Rotary& rotary) {
  RotaryArgs args;
  args.x = x;
  args.table = rotary.table;
  args.positions = rotary.positions;
  args.first = rotary.first;
  return args;
}

}  // namespace

Variable rotary(const Variable& x, const Rotary& rotary) {
  return record("rotary", kernels::rotary(rotary_args(x.value(), rotary)).out, {x}, {},
                [rotary](const Saved&, std::span<const Tensor> grad, const Need&) -> Gradients {
                  RotaryBackwardArgs args;
                  args.forward = rotary_args({}, rotary);
                  args.grad_out = grad[0];
                  return {kernels::rotary_backward(args).grad_x};
                });
}

Variable rotary_norm(const Variable& x, const Variable& weight, const Rotary& rotary, double epsilon) {
  RotaryArgs forward = rotary_args(x.value(), rotary);
  forward.weight = weight.value();
  forward.epsilon = epsilon;
  forward = kernels::rotary(forward);
  return record("rotary_norm", forward.out, {x, weight}, {x.value(), weight.value(), forward.rstd},
                [rotary](const Saved& saved, std::span<const Tensor> grad, const Need& need) -> Gradients {
                  RotaryBackwardArgs args;
                  args.forward = rotary_args(saved[0], rotary);
                  args.forward.weight = saved[1];
                  args.forward.rstd = saved[2];
                  args.grad_out = grad[0];
                  place_parameter_gradient(need, 1, saved[1], args.grad_weight, args.add_weight);
                  return {kernels::rotary_backward(args).grad_x, args.grad_weight};
                });
}

}  // namespace keel
