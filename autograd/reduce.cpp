#include "keel/autograd/reduce.h"

#include "keel/kernels/elementwise.h"
#include "keel/kernels/reduce.h"

namespace keel {
namespace {

// The reduced shape with extents of 1 kept, so that it broadcasts against x.
Dims kept_shape(const Tensor& x, const Dims& dims) {
  Dims shape = x.shape();
  for (int i = 0; i < x.rank(); ++i)
    if (dims.empty()) shape[i] = 1;
  for (const std::int64_t dim : dims) shape[x.wrap_dim(static_cast<int>(dim))] = 1;
  return shape;
}

// A gradient spread over an input of `shape`, rounded to its dtype before that.
Tensor spread(const Tensor& grad, const Dims& shape, DType dtype) {
  return (product(shape) == 1 ? grad : kernels::cast(grad, dtype)).expand(shape);
}

}  // namespace

Variable sum(const Variable& x, const Dims& dims, bool keep) {
  return takes_wide(record("sum", kernels::sum(x.value(), dims, keep), {x}, {},
                           [shape = x.shape(), dtype = x.dtype(), kept = kept_shape(x.value(), dims)](
                               const Saved&, std::span<const Tensor> grad, const Need&) -> Gradients {
                             return {spread(kernels::contiguous(grad[0]).view(kept), shape, dtype)};
                           }));
}

Variable mean(const Variable& x, const Dims& dims, bool keep) {
  const Dims kept = kept_shape(x.value(), dims);
  const double factor = static_cast<double>(product(kept)) / static_cast<double>(x.value().numel());
  return takes_wide(record("mean", kernels::mean(x.value(), dims, keep), {x}, {},
                           [shape = x.shape(), dtype = x.dtype(), kept, factor](
                               const Saved&, std::span<const Tensor> grad, const Need&) -> Gradients {
                             return {spread(kernels::unary<MulScalar>(grad[0], factor).view(kept), shape, dtype)};
                           }));
}

Variable max(const Variable& x, const Dims& dims, bool keep) {
  Tensor out = kernels::max(x.value(), dims, keep);
  return record("max", out, {x}, {x.value(), out},
                [dims, kept = kept_shape(x.value(), dims)](const Saved& saved, std::span<const Tensor> grad,
                                                           const Need&) -> Gradients {
                  const Tensor& value = saved[0];
                  const Tensor chosen =
                      kernels::cast(kernels::binary<Equal>(value, saved[1].view(kept)), value.dtype());
                  const Tensor share =
                      kernels::binary<Div>(kernels::contiguous(grad[0]).view(kept), kernels::sum(chosen, dims, true));
                  return {kernels::binary<Mul>(chosen, share)};
                });
}

}  // namespace keel
