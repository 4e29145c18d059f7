#pragma once
// How keel divides a product on a GPU, and its own two kernels for it.

#include "keel/kernels/matmul.h"

namespace keel::cuda {

// How a product is divided: the tile of a block, and in how many splits of k.
enum class MatmulTile : unsigned char { small, medium, large };
struct MatmulPlan {
  MatmulTile tile = MatmulTile::small;
  int splits = 1;
};
// By the shape alone. The tile does not change bits, the splits do.
MatmulPlan plan_matmul(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batches);

// Whether the tensor-core kernel takes these operands: bf16 or f16, rows or columns dense and at multiples of 16 bytes.
bool fits_tensor_cores(const MatmulArgs& args);
void multiply_on_tensor_cores(const MatmulArgs& args, const MatmulPlan& plan);
// The plain tiled kernel: every dtype and layout.
void multiply_plain(const MatmulArgs& args, const MatmulPlan& plan);
// The better of the two.
void multiply_own(const MatmulArgs& args);

}  // namespace keel::cuda
