// cuda_tensor_core: a matrix product on tensor cores
//
// A tensor core multiplies small matrices as a whole: sum += a b, for a of (16, 16), b of (16, 8) and sum of
// (16, 8). The numbers of a and b are bf16, those of sum are float. The matrices lie in the registers of a
// warp. Each of its 32 lanes has some numbers of each matrix, and which they are is fixed (PTX ISA,
// mma.m16n8k16). A register of 32 bits holds two bf16. With g = lane / 4 and t = lane % 4, a lane has
//
//   a[0]   row g,     columns 2t and 2t + 1         b[0]   rows 2t and 2t + 1, column g
//   a[1]   row g + 8, columns 2t and 2t + 1         b[1]   rows 2t + 8 and 2t + 9, column g
//   a[2]   row g,     columns 2t + 8 and 2t + 9     sum[0], sum[1]   row g,     columns 2t and 2t + 1
//   a[3]   row g + 8, columns 2t + 8 and 2t + 9     sum[2], sum[3]   row g + 8, columns 2t and 2t + 1
//
// learn::pack(first, second) makes a register of two bf16. All lanes of a warp together call
// learn::multiply_add(sum, a, b), with float sum[4], unsigned a[4] and unsigned b[2].
//
// Write product(): c = a b, for a of (m, k), b of (k, n) and c of (m, n), each row by row. m and k are
// multiples of 16, and n is one of 8. A block is one warp. Block (blockIdx.x, blockIdx.y) makes the 16 rows
// of c from 16 * blockIdx.y on, and in them the 8 columns from 8 * blockIdx.x on. To read afterwards:
// runtime/cuda/tensor_core.h, and kernels/cuda/matmul_tensor.h, which goes through shared memory.

#include "learn/given/kernel.h"
#include "learn/given/tensor_core.h"

__global__ void product(learn::Global<const learn::bf16> a, learn::Global<const learn::bf16> b,
                        learn::Global<float> c, int m, int n, int k) {
  // Your code.
}
