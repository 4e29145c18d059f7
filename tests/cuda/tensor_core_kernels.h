#pragma once
// Kernels that show what keel/runtime/cuda/tensor_core.h does; the tests look at the numbers.

#include "keel/runtime/tensor.h"

namespace keel::testing {

// sum += a b of one warp; a: (16, 16), b: (16, 8) of one 16-bit dtype, sum: (16, 8) f32.
void multiply_tiles(const Tensor& a, const Tensor& b, const Tensor& sum);

// What each lane's registers hold after a load of `count` matrices; matrices: (count, 8, 8) of 16 bits, out: (32,
// count) i32. The matrices' rows lie in shared memory in reverse order and with gaps.
void load_tiles(const Tensor& matrices, bool transposed, const Tensor& out);

// out = a b of one warp, with two stages of asynchronous copies; a: (m, k), b: (n, k) transposed, m and n at most 16,
// rows of a multiple of 8 elements, of which the first k count; out: (m, n) f32.
void multiply_strips(const Tensor& a, const Tensor& b, std::int64_t k, const Tensor& out);

}  // namespace keel::testing
