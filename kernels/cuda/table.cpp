#include "keel/kernels/cuda/backend.h"

namespace keel::cuda {

void fill_table(KernelTable& table, KernelChoice) {
  add_elementwise(table);
  add_attention(table);
  add_copy(table);
  add_embedding(table);
  add_update(table);
  add_matmul(table);
  add_reduce(table);
  add_softmax(table);
  add_cross_entropy(table);
  add_norm(table);
  add_norm_backward(table);
  add_dropout(table);
}

}  // namespace keel::cuda
