#include "keel/kernels/cuda/backend.h"

namespace keel::cuda {

void fill_table(KernelTable& table, [[maybe_unused]] KernelChoice choice) {
  add_elementwise(table);
  add_copy(table);
  add_embedding(table);
  add_update(table);
  add_matmul(table);
  add_reduce(table);
#ifdef KEEL_HAVE_CUBLASLT
  if (choice == KernelChoice::automatic) add_cublaslt(table);
#endif
}

}  // namespace keel::cuda
