#include "keel/autograd/elementwise.h"

namespace keel {

Variable unary(int op, const Variable& x, double parameter) {
  Tensor out = kernels::unary(op, x.value(), parameter);
  const Tensor kept = keep_of_unary(op) == Keep::output ? out : x.value();
  return takes_wide(record(name_of_unary(op), std::move(out), {x}, {kept},
                           [op, parameter](const Saved& saved, std::span<const Tensor> grad, const Need&) -> Gradients {
                             const Tensor like = kernels::cast(saved[0], grad[0].dtype());
                             return {kernels::unary_backward(op, grad[0], like, parameter)};
                           }));
}

Variable binary(int op, const Variable& a, const Variable& b) {
  return takes_wide(
      record(name_of_binary(op), kernels::binary(op, a.value(), b.value()), {a, b}, {a.value(), b.value()},
             [op](const Saved& saved, std::span<const Tensor> grad, const Need& need) -> Gradients {
               const Tensor x = kernels::cast(saved[0], grad[0].dtype()), y = kernels::cast(saved[1], grad[0].dtype());
               Gradients gradients(2);
               for (int input = 0; input < 2; ++input)
                 if (need[static_cast<std::size_t>(input)])
                   gradients[static_cast<std::size_t>(input)] = kernels::binary_backward(op, input, grad[0], x, y);
               return gradients;
             }));
}

template <>
Variable binary<Add>(const Variable& a, const Variable& b) {
  return takes_wide(record("add", kernels::binary<Add>(a.value(), b.value()), {a, b}, {},
                           [](const Saved&, std::span<const Tensor> grad, const Need&) -> Gradients {
                             return {grad[0], grad[0]};
                           }));
}

Variable where(const Tensor& condition, const Variable& a, const Variable& b) {
  return record("where", kernels::where(condition, a.value(), b.value()), {a, b}, {condition},
                [](const Saved& saved, std::span<const Tensor> grad, const Need& need) -> Gradients {
                  Tensor zero = zeros(grad[0].context(), {}, grad[0].dtype());
                  return {need[0] ? kernels::where(saved[0], grad[0], zero) : Tensor(),
                          need[1] ? kernels::where(saved[0], zero, grad[0]) : Tensor()};
                });
}

Variable cast(const Variable& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return takes_wide(record("cast", kernels::cast(x.value(), dtype), {x}, {},
                           [from = x.dtype()](const Saved&, std::span<const Tensor> grad, const Need&) -> Gradients {
                             const bool stays_wide = grad[0].numel() == 1 && size_of(from) < size_of(grad[0].dtype());
                             return {stays_wide ? grad[0] : kernels::cast(grad[0], from)};
                           }));
}

Variable dropout(const Variable& x, double probability, const DropoutKey& key, const Tensor& sample_ids) {
  if (probability == 0) return x;
  return record("dropout", kernels::dropout(x.value(), probability, key, sample_ids), {x}, {sample_ids},
                [probability, key](const Saved& saved, std::span<const Tensor> grad, const Need&) -> Gradients {
                  return {kernels::dropout(kernels::contiguous(grad[0]), probability, key, saved[0])};
                });
}

}  // namespace keel
