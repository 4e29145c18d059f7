#include "keel/kernels/embedding.h"

#include "keel/kernels/checks.h"
#include "keel/kernels/table.h"

namespace keel::kernels {
namespace {

void check_ids(const char* op, const Tensor& ids, const Context& context) {
  check_context(op, "ids", ids, context);
  KEEL_CHECK(ids.dtype() == DType::i32 || ids.dtype() == DType::i64, op, ": ids must be i32 or i64, got ", ids);
}

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& ids) {
  constexpr const char* kOp = "embedding";
  check_defined(kOp, "table", table);
  KEEL_CHECK(table.rank() == 2, kOp, ": table must be (vocabulary, width), got ", table);
  check_ids(kOp, ids, table.context());
  Dims shape = ids.shape();
  shape.push_back(table.dim(1));
  const Tensor out = empty(table.context(), shape, table.dtype());
  const bool has_dense_rows = table.dim(1) <= 1 || table.stride(1) == 1;
  run_kernel(table.context(), kOp, kernel_table(table.context()).embedding,
             EmbeddingArgs{has_dense_rows ? table : contiguous(table), contiguous(ids).flatten(), as_rows(kOp, out)});
  return out;
}

void embedding_backward(const Tensor& grad_output, const Tensor& ids, const Tensor& grad_table, bool add) {
  constexpr const char* kOp = "embedding_backward";
  check_floating(kOp, "grad_output", grad_output);
  check_ids(kOp, ids, grad_output.context());
  check_context(kOp, "grad_table", grad_table, grad_output.context());
  KEEL_CHECK(grad_table.rank() == 2, kOp, ": grad_table must be (vocabulary, width), got ", grad_table);
  KEEL_CHECK(grad_table.dtype() == DType::f32 || grad_table.dtype() == grad_output.dtype(), kOp,
             ": grad_table must have the dtype of grad_output or f32, got ", grad_table);
  check_dense(kOp, "grad_table", grad_table);
  Dims shape = ids.shape();
  shape.push_back(grad_table.dim(1));
  check_tensor(kOp, "grad_output", grad_output, shape, grad_output.dtype(), grad_output.context());
  run_kernel(grad_output.context(), kOp, kernel_table(grad_output.context()).embedding_backward,
             EmbeddingBackwardArgs{as_rows(kOp, contiguous(grad_output)), contiguous(ids).flatten(), grad_table, add});
  grad_table.mark_written();
}

}  // namespace keel::kernels
