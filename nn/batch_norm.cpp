#include "keel/nn/batch_norm.h"

#include "keel/autograd/functions.h"
#include "keel/kernels/elementwise.h"

namespace keel {

BatchNorm::BatchNorm(std::int64_t width, const BatchNormOptions& options)
    : running_mean(Buffer::moving_average({width}, options.momentum, 0)),
      running_var(Buffer::moving_average({width}, options.momentum, 1)),
      epsilon(options.epsilon),
      width_(width) {
  KEEL_CHECK(width > 0, "batch norm needs a width of at least 1, got ", width);
  KEEL_CHECK(epsilon > 0, "the epsilon of batch norm must be positive, got ", epsilon);
  if (!options.affine) return;
  weight = Parameter({width}, Initializer::ones());
  bias = Parameter({width}, Initializer::zeros());
}

Variable BatchNorm::forward(const Variable& x, Forward& pass) const {
  const Dims& shape = x.value().shape();
  KEEL_CHECK(shape.size() >= 2 && shape.back() == width_, "batch norm of width ", width_,
             " needs an input of shape (rows, ..., ", width_, "), got ", shape);
  const DType outer = x.value().dtype(), inner = outer == DType::f64 ? DType::f64 : DType::f32;
  const std::int64_t n = x.value().numel() / width_;
  const Variable rows = cast(view(x, {n, width_}), inner);
  Variable centred, variance;
  if (pass.training) {
    KEEL_CHECK(n > 1, "batch norm cannot train on one value per channel, the input being ", shape,
               "; a micro-batch needs at least 2 rows");
    const Variable middle = mean(rows, {0}, true);
    centred = sub(rows, middle);
    variance = mean(square(centred), {0}, true);
    running_mean.observe(pass, middle.value().view({width_}), n);
    const Tensor unbiased = kernels::clone(variance.value());
    kernels::scale(unbiased, static_cast<double>(n) / static_cast<double>(n - 1));
    running_var.observe(pass, unbiased.view({width_}), n);
  } else {
    centred = sub(rows, Variable(kernels::cast(running_mean.value(), inner)));
    variance = Variable(kernels::cast(running_var.value(), inner));
  }
  Variable y = mul(centred, rsqrt(shift(variance, epsilon)));
  if (weight.defined()) y = add(mul(y, cast(weight, inner)), cast(bias, inner));
  return view(cast(y, outer), shape);
}

void BatchNorm::visit(Visitor& v) {
  v("weight", weight);
  v("bias", bias);
  v("running_mean", running_mean);
  v("running_var", running_var);
}

}  // namespace keel
