#include "keel/kernels/reduce.h"

#include <array>

#include "keel/kernels/table.h"

namespace keel {
namespace {

// The dimensions wrapped and in ascending order; all of them when none is given.
Dims checked_dims(std::string_view name, const Tensor& x, const Dims& dims) {
  std::array<bool, kMaxRank> chosen{};
  for (const std::int64_t dim : dims) {
    const int wrapped = x.wrap_dim(static_cast<int>(dim));
    KEEL_CHECK(!chosen[static_cast<std::size_t>(wrapped)], name, " over dimensions ", dims, " names ", wrapped,
               " twice");
    chosen[static_cast<std::size_t>(wrapped)] = true;
  }
  Dims sorted;
  for (int i = 0; i < x.rank(); ++i)
    if (dims.empty() || chosen[static_cast<std::size_t>(i)]) sorted.push_back(i);
  return sorted;
}

DType result_dtype(Reduction reduction, DType dtype) {
  if (reduction == Reduction::argmax) return DType::i64;
  return reduction == Reduction::sum && !is_floating(dtype) ? DType::i64 : dtype;
}

Tensor reduce(Reduction reduction, std::string_view name, const Tensor& x, const Dims& over, bool keep) {
  KEEL_CHECK(x.defined(), name, " needs a tensor, got an empty handle");
  if (x.rank() == 0) return reduce(reduction, name, x.view({1}), {0}, false);
  const Dims dims = checked_dims(name, x, over);
  KEEL_CHECK(reduction != Reduction::mean || is_floating(x.dtype()), "mean needs a floating-point tensor, got ", x);

  Dims kept_shape = x.shape(), shape;
  std::int64_t reduced = 1;
  for (const std::int64_t dim : dims) {
    reduced *= x.shape()[static_cast<int>(dim)];
    kept_shape[static_cast<int>(dim)] = 1;
  }
  for (int i = 0, next = 0; i < x.rank(); ++i) {
    if (next < dims.size() && dims[next] == i) ++next;
    else shape.push_back(x.shape()[i]);
  }
  Tensor out = empty(x.context(), kept_shape, result_dtype(reduction, x.dtype()));
  const bool defined_when_empty = reduction == Reduction::sum || reduction == Reduction::mean;
  KEEL_CHECK(reduced > 0 || defined_when_empty || out.numel() == 0, name, " of no elements is not defined: ", x,
             " over dimensions ", dims);
  run_kernel(x.context(), name, kernel_table(x.context()).reduce, ReduceArgs{reduction, x, dims, out});
  return keep ? out : out.view(shape);
}

}  // namespace

namespace kernels {

Tensor sum(const Tensor& x, const Dims& dims, bool keep) { return reduce(Reduction::sum, "sum", x, dims, keep); }
Tensor mean(const Tensor& x, const Dims& dims, bool keep) { return reduce(Reduction::mean, "mean", x, dims, keep); }
Tensor max(const Tensor& x, const Dims& dims, bool keep) { return reduce(Reduction::max, "max", x, dims, keep); }
Tensor min(const Tensor& x, const Dims& dims, bool keep) { return reduce(Reduction::min, "min", x, dims, keep); }
Tensor argmax(const Tensor& x, int dim, bool keep) { return reduce(Reduction::argmax, "argmax", x, {dim}, keep); }

Tensor sum_to(const Tensor& x, const Dims& shape) {
  KEEL_CHECK(x.defined() && x.rank() >= shape.size(), "sum_to ", shape, " does not undo a broadcast to ", x);
  if (x.shape() == shape) return x;
  const int added = x.rank() - shape.size();
  Dims dims;
  for (int i = 0; i < x.rank(); ++i) {
    if (i < added || (shape[i - added] == 1 && x.shape()[i] != 1)) {
      dims.push_back(i);
    } else {
      KEEL_CHECK(shape[i - added] == x.shape()[i], "sum_to ", shape, " does not undo a broadcast to ", x);
    }
  }
  return sum(x, dims, true).view(shape);
}

Tensor sum_rows(const Tensor& x, const Tensor& into, bool add) {
  KEEL_CHECK(x.defined() && x.rank() == 2, "sum_rows needs a matrix (rows, cols), got ", x);
  if (!into.defined()) {
    KEEL_CHECK(!add, "sum_rows cannot add to a result that was not given");
    return sum(x, {0});
  }
  KEEL_CHECK(into.context() == x.context(), "sum_rows mixes contexts: ", x, " and ", into, " belong to different ones");
  KEEL_CHECK(into.shape() == Dims{x.shape()[1]} && into.is_contiguous(), "sum_rows of ", x, " needs a dense (",
             x.shape()[1], ") to write to, got ", into, " with strides ", into.strides());
  KEEL_CHECK(is_floating(x.dtype()) == is_floating(into.dtype()), "sum_rows cannot write sums of ", x, " to ", into);
  ReduceArgs args{Reduction::sum, x, {0}, into.unsqueeze(0)};
  args.add = add;
  run_kernel(x.context(), "sum", kernel_table(x.context()).reduce, args);
  into.mark_written();
  return into;
}

}  // namespace kernels
}  // namespace keel
