#include "keel/kernels/elementwise.h"

#include <cmath>

#include "keel/kernels/table.h"

namespace keel {
namespace {

const KernelTable& table_of(const Tensor& x, std::string_view name) {
  KEEL_CHECK(x.defined(), name, " needs a tensor, got an empty handle");
  return kernel_table(x.context());
}

// Operands of one operation live in one context.
void check_together(std::string_view name, const Tensor& a, const Tensor& b) {
  KEEL_CHECK(a.defined() && b.defined(), name, " needs two tensors, got ", a, " and ", b);
  KEEL_CHECK(a.context() == b.context(), name, " mixes contexts: ", a, " and ", b, " belong to different ones");
}

void check_one_dtype(std::string_view name, const Tensor& a, const Tensor& b) {
  check_together(name, a, b);
  KEEL_CHECK(a.dtype() == b.dtype(), name, " needs one dtype, got ", a, " and ", b, "; cast one of them");
}

void check_writable(std::string_view name, const Tensor& out) {
  if (out.numel() == 0) return;  // a dense tensor without elements may have strides of 0
  for (int i = 0; i < out.rank(); ++i)
    KEEL_CHECK(out.shape()[i] <= 1 || out.strides()[i] != 0, name, " cannot write to a broadcast view: ", out,
               " with strides ", out.strides());
}

std::size_t checked_op(std::string_view kind, int op, int size) {
  KEEL_CHECK(op >= 0 && op < size, "there is no ", kind, " operation number ", op);
  return static_cast<std::size_t>(op);
}

}  // namespace

namespace kernels {

Tensor unary(int op, const Tensor& x, double parameter) {
  const UnaryEntry& entry = table_of(x, "a unary operation").unary[checked_op("unary", op, UnaryOps::size)];
  Tensor y = empty_like(x);
  run_kernel(x.context(), name_of_unary(op), entry.forward, x, y, parameter);
  return y;
}

Tensor unary_backward(int op, const Tensor& grad_output, const Tensor& kept, double parameter) {
  const UnaryEntry& entry =
      table_of(grad_output, "a unary operation's backward").unary[checked_op("unary", op, UnaryOps::size)];
  const std::string_view name = name_of_unary(op);
  KEEL_CHECK(is_floating(grad_output.dtype()), "the backward of ", name, " needs floating-point gradients, got ",
             grad_output);
  if (keep_of_unary(op) != Keep::none) {
    check_one_dtype(name, grad_output, kept);
    KEEL_CHECK(grad_output.shape() == kept.shape(), "the backward of ", name, " got a gradient of ", grad_output,
               " for a kept ", kept);
  }
  Tensor grad_input = empty_like(grad_output);
  run_kernel(grad_output.context(), name, entry.backward, grad_output, kept, grad_input, parameter);
  return grad_input;
}

Dims broadcast_shapes(const Dims& a, const Dims& b) {
  const int rank = a.size() > b.size() ? a.size() : b.size();
  Dims shape(rank, 1);
  for (int i = 1; i <= rank; ++i) {
    const std::int64_t from_a = i <= a.size() ? a[a.size() - i] : 1;
    const std::int64_t from_b = i <= b.size() ? b[b.size() - i] : 1;
    KEEL_CHECK(from_a == from_b || from_a == 1 || from_b == 1, "shapes ", a, " and ", b, " do not broadcast");
    shape[rank - i] = from_a == 1 ? from_b : from_a;
  }
  return shape;
}

Tensor binary(int op, const Tensor& a, const Tensor& b) {
  const std::size_t at = checked_op("binary", op, BinaryOps::size);
  const std::string_view name = name_of_binary(op);
  check_one_dtype(name, a, b);
  const Dims shape = broadcast_shapes(a.shape(), b.shape());
  const BinaryEntry& entry = kernel_table(a.context()).binary[at];
  Tensor out = empty(a.context(), shape, is_comparison_op(op) ? DType::u8 : a.dtype());
  run_kernel(a.context(), name, entry.forward, a.expand(shape), b.expand(shape), out);
  return out;
}

Tensor binary_backward(int op, int input, const Tensor& grad_output, const Tensor& a, const Tensor& b) {
  const std::size_t at = checked_op("binary", op, BinaryOps::size);
  const std::string_view name = name_of_binary(op);
  KEEL_CHECK(input == 0 || input == 1, name, " has inputs 0 and 1, got ", input);
  KEEL_CHECK(!is_comparison_op(op), "the comparison ", name, " has no gradient");
  check_one_dtype(name, a, b);
  check_one_dtype(name, grad_output, a);
  KEEL_CHECK(is_floating(a.dtype()), "the backward of ", name, " needs floating-point inputs, got ", a);
  const Dims shape = broadcast_shapes(a.shape(), b.shape());
  KEEL_CHECK(grad_output.shape() == shape, "the backward of ", name, " got a gradient of ", grad_output,
             " for inputs that broadcast to ", shape);
  Tensor grad_input = empty_like(grad_output);
  run_kernel(a.context(), name, kernel_table(a.context()).binary[at].backward, input, grad_output, a.expand(shape),
             b.expand(shape), grad_input);
  return grad_input;
}

void copy_into(const Tensor& to, const Tensor& from) {
  check_together("copy", to, from);
  check_writable("copy", to);
  run_kernel(to.context(), "copy", kernel_table(to.context()).copy, from.expand(to.shape()), to);
  to.mark_written();
}

Tensor cast(const Tensor& x, DType dtype) {
  const KernelTable& table = table_of(x, "cast");
  if (x.dtype() == dtype) return x;
  Tensor out = empty(x.context(), x.shape(), dtype);
  run_kernel(x.context(), "cast", table.copy, x, out);
  return out;
}

Tensor contiguous(const Tensor& x) {
  KEEL_CHECK(x.defined(), "contiguous needs a tensor, got an empty handle");
  return x.is_contiguous() ? x : clone(x);
}

Tensor clone(const Tensor& x) {
  const KernelTable& table = table_of(x, "clone");
  Tensor out = empty_like(x);
  run_kernel(x.context(), "copy", table.copy, x, out);
  return out;
}

Tensor to(const Tensor& x, const Context& context, Purpose purpose) {
  KEEL_CHECK(x.defined(), "to needs a tensor, got an empty handle");
  return x.context() == context ? x : transfer(contiguous(x), context, purpose);
}

void copy_across(const Tensor& to, const Tensor& from, Purpose purpose) {
  check_writable("copy", to);
  const bool is_straight = to.context() != from.context() && to.dtype() == from.dtype() && to.shape() == from.shape() &&
                           to.is_contiguous() && from.is_contiguous();
  if (!is_straight) return copy_into(to, kernels::to(from, to.context(), purpose));
  transfer(from, to);
  to.mark_written();
}

void fill(const Tensor& out, double value) {
  const KernelTable& table = table_of(out, "fill");
  check_writable("fill", out);
  run_kernel(out.context(), "fill", table.fill, out, value);
  out.mark_written();
}

Tensor full(const Context& context, const Dims& shape, double value, DType dtype) {
  Tensor out = empty(context, shape, dtype);
  run_kernel(context, "fill", kernel_table(context).fill, out, value);
  return out;
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_one_dtype("where", a, b);
  check_together("where", condition, a);
  KEEL_CHECK(condition.dtype() == DType::u8, "where needs a u8 condition, got ", condition);
  const Dims shape = broadcast_shapes(condition.shape(), broadcast_shapes(a.shape(), b.shape()));
  Tensor out = empty(a.context(), shape, a.dtype());
  run_kernel(a.context(), "where", kernel_table(a.context()).where, condition.expand(shape), a.expand(shape),
             b.expand(shape), out);
  return out;
}

void accumulate(const Tensor& into, const Tensor& from) {
  check_together("accumulate", into, from);
  check_writable("accumulate", into);
  KEEL_CHECK(into.shape() == from.shape(), "accumulate needs equal shapes, got ", from, " into ", into);
  KEEL_CHECK(is_floating(into.dtype()) || !is_floating(from.dtype()), "accumulate would cut the fractions of ", from,
             " off to add it to ", into);
  run_kernel(into.context(), "accumulate", kernel_table(into.context()).accumulate, from, into);
  into.mark_written();
}

void scale(const Tensor& x, double factor) {
  const KernelTable& table = table_of(x, "scale");
  check_writable("scale", x);
  KEEL_CHECK(is_floating(x.dtype()), "scale needs a floating-point tensor, got ", x);
  run_kernel(x.context(), "scale", table.scale, x, factor);
  x.mark_written();
}

void scale_by(const Tensor& x, const Tensor& factor, const Tensor& divisor) {
  check_together("scale_by", x, factor);
  check_writable("scale_by", x);
  KEEL_CHECK(is_floating(x.dtype()), "scale_by needs a floating-point tensor, got ", x);
  KEEL_CHECK(factor.numel() == 1 && (factor.dtype() == DType::f32 || factor.dtype() == DType::f64),
             "scale_by needs one factor in f32 or f64, got ", factor);
  if (divisor.defined()) {
    check_together("scale_by", x, divisor);
    KEEL_CHECK(divisor.numel() == 1 && divisor.dtype() == DType::i64, "scale_by needs one divisor in i64, got ",
               divisor);
  }
  run_kernel(x.context(), "scale_by", kernel_table(x.context()).scale_by, x, factor, divisor);
  x.mark_written();
}

Tensor arange(const Context& context, std::int64_t first, std::int64_t count) {
  Tensor out = empty(context, {count}, DType::i64);
  run_kernel(context, "arange", kernel_table(context).arange, out, first);
  return out;
}

Tensor concat(std::span<const Tensor> parts, int dim) {
  KEEL_CHECK(!parts.empty(), "concat needs at least one tensor");
  const Tensor& first = parts.front();
  const KernelTable& table = table_of(first, "concat");
  dim = first.wrap_dim(dim);
  Dims shape = first.shape();
  for (const Tensor& part : parts.subspan(1)) {
    check_one_dtype("concat", first, part);
    Dims expected = first.shape();
    if (part.rank() == first.rank()) expected[dim] = part.shape()[dim];
    KEEL_CHECK(part.shape() == expected, "concat along dimension ", dim, " cannot join ", first, " and ", part);
    shape[dim] += part.shape()[dim];
  }
  Tensor out = empty(first.context(), shape, first.dtype());
  std::int64_t at = 0;
  for (const Tensor& part : parts) {
    const std::int64_t end = at + part.shape()[dim];
    run_kernel(first.context(), "concat", table.copy, part, out.slice(dim, at, end));
    at = end;
  }
  return out;
}

Tensor dropout(const Tensor& x, double probability, const DropoutKey& key, const Tensor& sample_ids) {
  check_together("dropout", x, sample_ids);
  KEEL_CHECK(probability >= 0 && probability <= 1, "a dropout probability lies in [0, 1], got ", probability);
  KEEL_CHECK(x.rank() == 3 && is_floating(x.dtype()),
             "dropout needs floating-point (samples, positions, channels), got ", x);
  KEEL_CHECK(x.shape()[1] <= INT32_MAX && x.shape()[2] <= INT32_MAX, "dropout counts positions and channels in 31 ",
             "bits, got ", x);
  KEEL_CHECK(sample_ids.dtype() == DType::i64 && sample_ids.shape() == Dims{x.shape()[0]}, "dropout of ", x,
             " needs i64 (", x.shape()[0], ") sample ids, got ", sample_ids);
  const DropoutArgs args{contiguous(x), empty_like(x), contiguous(sample_ids), key, probability};
  run_kernel(x.context(), "dropout", kernel_table(x.context()).dropout, args);
  return args.out;
}

}  // namespace kernels
}  // namespace keel
