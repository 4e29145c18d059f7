#include "keel/kernels/select.h"

#include "keel/kernels/checks.h"
#include "keel/kernels/table.h"

namespace keel::kernels {
namespace {

// A dense tensor as (outer, extent, inner) around dimension `dim`.
Tensor around(const Tensor& dense, int dim) {
  std::int64_t outer = 1, inner = 1;
  for (int i = 0; i < dim; ++i) outer *= dense.dim(i);
  for (int i = dim + 1; i < dense.rank(); ++i) inner *= dense.dim(i);
  return dense.view({outer, dense.dim(dim), inner});
}

void check_index(const char* op, const Tensor& index, const Context& context) {
  check_context(op, "index", index, context);
  KEEL_CHECK(index.dtype() == DType::i64, op, ": index must be i64, got ", index);
}

void check_list(const char* op, const Tensor& index, const Context& context) {
  check_index(op, index, context);
  KEEL_CHECK(index.rank() == 1, op, ": index must be a list of positions, got ", index);
}

}  // namespace

Tensor gather(const Tensor& x, int dim, const Tensor& index) {
  constexpr const char* kOp = "gather";
  check_defined(kOp, "x", x);
  check_index(kOp, index, x.context());
  dim = x.wrap_dim(dim);
  Dims expected = x.shape();
  if (index.rank() == x.rank()) expected[dim] = index.dim(dim);
  KEEL_CHECK(index.shape() == expected, kOp, ": index must have the shape of x except at dimension ", dim, ", got ",
             index, " for x ", x);
  const Tensor out = empty(x.context(), index.shape(), x.dtype());
  run_kernel(x.context(), kOp, kernel_table(x.context()).gather,
             GatherArgs{around(contiguous(x), dim), around(contiguous(index), dim), around(out, dim)});
  return out;
}

Tensor index_select(const Tensor& x, int dim, const Tensor& index) {
  constexpr const char* kOp = "index_select";
  check_defined(kOp, "x", x);
  check_list(kOp, index, x.context());
  dim = x.wrap_dim(dim);
  Dims shape = x.shape();
  shape[dim] = index.numel();
  const Tensor out = empty(x.context(), shape, x.dtype());
  run_kernel(x.context(), kOp, kernel_table(x.context()).index_select,
             IndexSelectArgs{around(contiguous(x), dim), contiguous(index), around(out, dim)});
  return out;
}

void index_add(const Tensor& target, int dim, const Tensor& index, const Tensor& source) {
  constexpr const char* kOp = "index_add";
  check_defined(kOp, "target", target);
  check_list(kOp, index, target.context());
  check_dense(kOp, "target", target);
  dim = target.wrap_dim(dim);
  Dims shape = target.shape();
  shape[dim] = index.numel();
  check_tensor(kOp, "source", source, shape, target.dtype(), target.context());
  run_kernel(target.context(), kOp, kernel_table(target.context()).index_add,
             IndexSelectArgs{around(target, dim), contiguous(index), around(contiguous(source), dim)});
  target.mark_written();
}

TopK top_k(const Tensor& x, std::int64_t k) {
  constexpr const char* kOp = "top_k";
  check_defined(kOp, "x", x);
  KEEL_CHECK(x.rank() >= 1, kOp, ": x needs at least one dimension, got ", x);
  KEEL_CHECK(k >= 0 && k <= x.dim(-1), kOp, ": k must be in [0, ", x.dim(-1), "], got ", k, " for x ", x);
  Dims shape = x.shape();
  shape[x.rank() - 1] = k;
  const TopK result{empty(x.context(), shape, x.dtype()), empty(x.context(), shape, DType::i64)};
  run_kernel(x.context(), kOp, kernel_table(x.context()).top_k,
             TopKArgs{as_rows(kOp, contiguous(x)), as_rows(kOp, result.values), as_rows(kOp, result.indices)});
  return result;
}

}  // namespace keel::kernels
