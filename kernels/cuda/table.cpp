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
}

}  // namespace keel::cuda
