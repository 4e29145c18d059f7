// cuda_matmul: a matrix product by tiles
//
// c = a b, for a of (m, k), b of (k, n) and c of (m, n), row by row:
//
//   c[i * n + j] = a[i * k] * b[j] + a[i * k + 1] * b[n + j] + ... + a[i * k + k - 1] * b[(k - 1) * n + j]
//
// A thread for each number of c would read a row of a and a column of b, and its neighbours the same again.
// Memory is too slow for that. So a block of kTile x kTile threads makes a tile of c, in steps along k. In
// each step it loads a tile of a and a tile of b into shared memory; each thread loads one number of either.
// Then each thread multiplies a row of the one by a column of the other. So a number is read from memory once
// for each tile of c that needs it, and not once for each number of c.
//
// Write matmul(). Thread (threadIdx.x, threadIdx.y) of block (blockIdx.x, blockIdx.y) makes the number of c
// in row kTile * blockIdx.y + threadIdx.y and column kTile * blockIdx.x + threadIdx.x. The launch has enough
// blocks for c. No size need be a multiple of kTile: what lies outside of a and b counts as 0.
// LEARN_SHARED(float, tile, n); in the kernel is CUDA's `__shared__ float tile[n];`, with its accesses
// checked.
//
// Each step uses the tiles twice: to fill them, and to read them. What must be over before either may begin?
// To read afterwards: kernels/cuda/matmul.cu, where a thread makes several rows and columns of c.

#include "learn/given/kernel.h"

constexpr int kTile = 16;

__global__ void matmul(learn::Global<const float> a, learn::Global<const float> b, learn::Global<float> c,
                       int m, int n, int k) {
  // Your code.
}
