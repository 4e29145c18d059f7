#include "keel/kernels/cuda/backend.h"

namespace keel::cuda {

void fill_table(KernelTable& table, KernelChoice) {
  add_elementwise(table);
  add_copy(table);
}

}  // namespace keel::cuda
