#include "keel/autograd/norm.h"

#include "keel/autograd/parameter_gradient.h"

namespace keel {
namespace {

// Fills where the parameter gradients go; inputs `weight` and `bias` of the node are numbered.
void place_parameter_gradients(NormBackwardArgs& args, const Need& need, std::size_t weight, std::size_t bias) {
  place_parameter_gradient(need, weight, args.weight, args.grad_weight, args.add_weight);
  place_parameter_gradient(need, bias, args.weight, args.grad_bias, args.add_bias);
}

Variable normalise(NormKind kind, std::string_view name, const Variable& x, const Variable& weight,
                   const Variable& bias, double epsilon) {
  kernels::NormResult result = kernels::norm(kind, x.value(), {}, weight.value(), bias.value(), epsilon);
  return record(name, result.out, {x, weight, bias}, {result.sum, weight.value(), result.mean, result.rstd},
                [kind](const Saved& saved, std::span<const Tensor> grad, const Need& need) -> Gradients {
                  NormBackwardArgs args{};
                  args.kind = kind;
                  args.grad_output = grad[0];
                  args.x = saved[0];
                  args.weight = saved[1];
                  args.mean = saved[2];
                  args.rstd = saved[3];

                  place_parameter_gradients(args, need, 1, 2);
                  return {kernels::norm_backward(args), args.grad_weight, args.grad_bias};
                });
}

}  // namespace

Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double epsilon) {
  return normalise(NormKind::layer, "layer_norm", x, weight, bias, epsilon);
}

Variable rms_norm(const Variable& x, const Variable& weight, double epsilon) {
  return normalise(NormKind::rms, "rms_norm", x, weight, {}, epsilon);
}

ResidualNorm add_norm(NormKind kind, const Variable& x, const Variable& residual, const Variable& weight,
                      const Variable& bias, double epsilon) {
  kernels::NormResult result = kernels::norm(kind, x.value(), residual.value(), weight.value(), bias.value(), epsilon);
  const std::array outputs = {result.sum, result.out};
  const std::array inputs = {x, residual, weight, bias};
  const std::array saved = {result.sum, weight.value(), result.mean, result.rstd};
  const std::vector<Variable> variables =
      record("add_norm", outputs, inputs, saved,
             [kind](const Saved& kept, std::span<const Tensor> grads, const Need& need) -> Gradients {
               if (!grads[1].defined()) return {grads[0], grads[0], Tensor(), Tensor()};
               NormBackwardArgs args{};
               args.kind = kind;
               args.grad_output = grads[1];
               args.grad_sum = grads[0];
               args.x = kept[0];
               args.weight = kept[1];
               args.mean = kept[2];
               args.rstd = kept[3];

               place_parameter_gradients(args, need, 2, 3);
               const Tensor grad_x = kernels::norm_backward(args);
               return {grad_x, grad_x, args.grad_weight, args.grad_bias};
             });
  return {variables[0], variables[1]};
}

}  // namespace keel
