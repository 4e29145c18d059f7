#include "keel/autograd/shape.h"

#include <array>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/select.h"

namespace keel {
namespace {

// Records a view; `undo` maps the gradient of the result back to the input's shape.
template <class F>
Variable record_view(std::string_view name, const Variable& x, Tensor out, F undo) {
  return takes_wide(record(name, std::move(out), {x}, {},
                           [undo = std::move(undo)](const Saved&, std::span<const Tensor> grad,
                                                    const Need&) -> Gradients { return {undo(grad[0])}; }));
}

Tensor zeros_like(const Tensor& like, const Dims& shape) { return zeros(like.context(), shape, like.dtype()); }

bool can_view(const Tensor& x, const Dims& shape) {
  try {
    x.view(shape);
    return true;
  } catch (const Error&) { return false; }
}

// For each element of a gather's index, the position in a dense tensor of `shape` that it reads. Nothing waits for the
// index: what the host computes is the part of the position that its other dimensions give.
Tensor flat_positions(const Tensor& index, int dim, const Dims& shape) {
  const Dims strides = dense_strides(shape);
  std::vector<std::int64_t> others(static_cast<std::size_t>(index.numel()));
  Dims at(index.rank(), 0);
  for (std::int64_t& position : others) {
    for (int d = 0; d < at.size(); ++d)
      if (d != dim) position += at[d] * strides[d];
    for (int d = at.size() - 1; d >= 0 && ++at[d] == index.dim(d); --d) at[d] = 0;
  }
  const Context& context = index.context();
  const Tensor stride = from_values(context, std::vector<std::int64_t>{strides[dim]}, {1});
  const Tensor picked = kernels::binary<Mul>(kernels::contiguous(index).flatten(), stride);
  return kernels::binary<Add>(picked, from_values(context, others, {index.numel()}));
}

}  // namespace

Variable view(const Variable& x, const Dims& shape) {
  const Tensor source = can_view(x.value(), shape) ? x.value() : kernels::contiguous(x.value());
  return record_view("view", x, source.view(shape),
                     [from = x.shape()](const Tensor& grad) { return kernels::contiguous(grad).view(from); });
}

Variable transpose(const Variable& x, int a, int b) {
  return record_view("transpose", x, x.value().transpose(a, b),
                     [a, b](const Tensor& grad) { return grad.transpose(a, b); });
}

Variable permute(const Variable& x, const Dims& order) {
  Dims inverse(order.size(), 0);
  for (int i = 0; i < order.size(); ++i) inverse[x.value().wrap_dim(static_cast<int>(order[i]))] = i;
  return record_view("permute", x, x.value().permute(order),
                     [inverse](const Tensor& grad) { return grad.permute(inverse); });
}

Variable slice(const Variable& x, int dim, std::int64_t begin, std::int64_t end) {
  return record_view("slice", x, x.value().slice(dim, begin, end),
                     [dim, begin, end, from = x.shape()](const Tensor& grad) {
                       Tensor whole = zeros_like(grad, from);
                       kernels::copy_into(whole.slice(dim, begin, end), grad);
                       return whole;
                     });
}

Variable expand(const Variable& x, const Dims& shape) {
  // The engine sums the gradient back to x's shape.
  return record_view("expand", x, x.value().expand(shape), [](const Tensor& grad) { return grad; });
}

Variable concat(std::span<const Variable> parts, int dim) {
  std::vector<Tensor> values;
  for (const Variable& part : parts) values.push_back(part.value());
  const Tensor out = kernels::concat(values, dim);
  dim = out.wrap_dim(dim);
  std::vector<std::int64_t> extents;
  for (const Tensor& value : values) extents.push_back(value.dim(dim));
  return record("concat", std::array{out}, parts, {},
                [dim, extents](const Saved&, std::span<const Tensor> grad, const Need&) {
                  Gradients gradients;
                  std::int64_t at = 0;
                  for (const std::int64_t extent : extents) {
                    gradients.push_back(grad[0].slice(dim, at, at + extent));
                    at += extent;
                  }
                  return gradients;
                })
      .front();
}

std::vector<Variable> split(const Variable& x, int parts, int dim) {
  const std::int64_t extent = x.dim(dim);
  KEEL_CHECK(parts > 0 && extent % parts == 0, "split: dimension ", dim, " of ", x.shape(), " is not a multiple of ",
             parts);
  std::vector<Tensor> outputs;
  for (int i = 0; i < parts; ++i) outputs.push_back(x.value().slice(dim, i * extent / parts, (i + 1) * extent / parts));
  return record("split", outputs, std::span(&x, 1), {},
                [dim, shape = x.shape(), dtype = x.dtype(), part = extent / parts](
                    const Saved&, std::span<const Tensor> grads, const Need&) -> Gradients {
                  Tensor whole;
                  for (std::size_t i = 0; i < grads.size(); ++i) {
                    if (!grads[i].defined()) continue;
                    if (!whole.defined()) whole = zeros(grads[i].context(), shape, dtype);
                    const auto begin = static_cast<std::int64_t>(i) * part;
                    kernels::copy_into(whole.slice(dim, begin, begin + part), grads[i]);
                  }
                  return {whole};
                });
}

Variable gather(const Variable& x, int dim, const Tensor& index) {
  return record("gather", kernels::gather(x.value(), dim, index), {x}, {index},
                [dim = x.value().wrap_dim(dim), shape = x.shape()](const Saved& saved, std::span<const Tensor> grad,
                                                                   const Need&) -> Gradients {
                  Tensor whole = zeros_like(grad[0], shape);
                  const Tensor positions = flat_positions(saved[0], dim, shape);
                  kernels::index_add(whole.flatten(), 0, positions, kernels::contiguous(grad[0]).flatten());
                  return {whole};
                });
}

Variable index_select(const Variable& x, int dim, const Tensor& index) {
  return record("index_select", kernels::index_select(x.value(), dim, index), {x}, {index},
                [dim, shape = x.shape()](const Saved& saved, std::span<const Tensor> grad, const Need&) -> Gradients {
                  Tensor whole = zeros_like(grad[0], shape);
                  kernels::index_add(whole, dim, saved[0], kernels::contiguous(grad[0]));
                  return {whole};
                });
}

}  // namespace keel
