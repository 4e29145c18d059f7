#include "keel/autograd/embedding.h"

#include "keel/kernels/elementwise.h"
#include "keel/kernels/embedding.h"

namespace keel {

Variable embedding(const Variable& table, const Tensor& ids) {
  return record("embedding", kernels::embedding(table.value(), ids), {table}, {ids},
                [shape = table.shape(), dtype = table.dtype()](const Saved& saved, std::span<const Tensor> grad,
                                                               const Need& need) -> Gradients {
                  const Tensor rows = kernels::contiguous(grad[0]);
                  if (Leaf* const leaf = need.sparse_leaf(0)) {
                    leaf->accumulate_rows(saved[0], rows);
                    return {Tensor()};
                  }
                  if (const auto destination = need.destination(0)) {
                    kernels::embedding_backward(rows, saved[0], destination->into, destination->add);
                    return {destination->into};
                  }
                  Tensor grad_table = empty(rows.context(), shape, dtype);
                  kernels::embedding_backward(rows, saved[0], grad_table, false);
                  return {grad_table};
                });
}

}  // namespace keel
