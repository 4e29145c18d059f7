#include "keel/autograd/matmul.h"

#include "keel/autograd/flops.h"
#include "keel/kernels/checks.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/matmul.h"
#include "keel/kernels/reduce.h"

namespace keel {
namespace {

// x viewed as (rows, in), so that any number of leading dimensions is one product.
Tensor as_rows(const Tensor& x) { return kernels::as_rows("linear", kernels::contiguous(x)); }

Tensor product(const Tensor& a, const Tensor& b, const MatmulOptions& options = {}) {
  Tensor out = kernels::matmul(a, b, options);
  count_flops(2.0 * static_cast<double>(out.numel()) * static_cast<double>(a.dim(-1)));
  return out;
}

// A product that goes straight to where the gradient of `input` accumulates, when there is such a place.
Tensor product_into(const Need& need, std::size_t input, const Tensor& a, const Tensor& b) {
  MatmulOptions options;
  if (const auto destination = need.destination(input)) {
    options.into = destination->into;
    options.accumulate = destination->add;
  }
  return product(a, b, options);
}

Tensor bias_gradient(const Need& need, std::size_t input, const Tensor& grad_rows) {
  if (const auto destination = need.destination(input))
    return kernels::sum_rows(grad_rows, destination->into, destination->add);
  return kernels::sum_rows(grad_rows);
}

// grad: the gradient of x weight^T + bias, any leading dimensions.
Gradients linear_backward(const Tensor& x, const Tensor& weight, const Tensor& grad, const Need& need) {
  const Tensor rows = as_rows(grad);
  Gradients gradients(3);
  if (need[1]) gradients[1] = product_into(need, 1, rows.transpose(0, 1), as_rows(x));
  if (need[2]) gradients[2] = bias_gradient(need, 2, rows);
  if (need[0]) gradients[0] = product(rows, weight).view(x.shape());
  return gradients;
}

void check_linear(const Variable& x, const Variable& weight, const Variable& bias) {
  KEEL_CHECK(weight.value().rank() == 2 && x.value().rank() >= 1 && x.dim(-1) == weight.dim(1), "linear: x ", x.shape(),
             " does not fit the weight ", weight.shape(), " (out, in)");
  KEEL_CHECK(!bias.defined() || (bias.value().rank() == 1 && bias.dim(0) == weight.dim(0)), "linear: bias ",
             bias.defined() ? bias.shape() : Dims{}, " does not fit the weight ", weight.shape());
}

Dims linear_shape(const Tensor& x, const Tensor& weight) {
  Dims shape = x.shape();
  shape[shape.size() - 1] = weight.dim(0);
  return shape;
}

}  // namespace

Variable matmul(const Variable& a, const Variable& b) {
  return record("matmul", product(a.value(), b.value()), {a, b}, {a.value(), b.value()},
                [](const Saved& saved, std::span<const Tensor> grad, const Need& need) -> Gradients {
                  const Tensor &x = saved[0], &y = saved[1];
                  Gradients gradients(2);
                  if (need[0]) gradients[0] = product(grad[0], y.transpose(-1, -2));
                  if (need[1]) {
                    const bool flat = y.rank() == 2 && x.rank() > 2;  // b was shared by the whole batch
                    const Tensor left = flat ? as_rows(x) : x;
                    const Tensor right = flat ? as_rows(grad[0]) : grad[0];
                    gradients[1] = product_into(need, 1, left.transpose(-1, -2), right);
                  }
                  return gradients;
                });
}

Variable linear(const Variable& x, const Variable& weight, const Variable& bias) {
  check_linear(x, weight, bias);
  MatmulOptions options;
  if (bias.defined()) {
    options.epilogue = Epilogue::bias;
    options.bias = bias.value();
  }
  Tensor out = product(as_rows(x.value()), weight.value().transpose(0, 1), options)
                   .view(linear_shape(x.value(), weight.value()));
  return record("linear", std::move(out), {x, weight, bias}, {x.value(), weight.value()},
                [](const Saved& saved, std::span<const Tensor> grad, const Need& need) {
                  return linear_backward(saved[0], saved[1], grad[0], need);
                });
}

Variable linear_gelu(const Variable& x, const Variable& weight, const Variable& bias) {
  check_linear(x, weight, bias);
  KEEL_CHECK(bias.defined(), "linear_gelu needs a bias");
  Tensor before;
  MatmulOptions options;
  options.epilogue = Epilogue::bias_gelu;
  options.bias = bias.value();
  options.pre_activation = &before;
  Tensor out = product(as_rows(x.value()), weight.value().transpose(0, 1), options)
                   .view(linear_shape(x.value(), weight.value()));
  before = before.view(out.shape());
  return record("linear_gelu", std::move(out), {x, weight, bias}, {x.value(), weight.value(), before},
                [](const Saved& saved, std::span<const Tensor> grad, const Need& need) {
                  const Tensor grad_before = kernels::unary_backward(index_of<GeluTanh, UnaryOps>, grad[0], saved[2]);
                  return linear_backward(saved[0], saved[1], grad_before, need);
                });
}

}  // namespace keel
