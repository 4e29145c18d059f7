// cuda_matmul: a matrix product by tiles
//
// c = a b, for a of (m, k), b of (k, n) and c of (m, n), row by row:
//
//   c[i * n + j] = a[i * k] * b[j] + a[i * k + 1] * b[n + j] + ... + a[i * k + k - 1] * b[(k - 1) * n + j]
//
// A thread for each number of c would read a row of a and a column of b, and its neighbours the same again.
// Memory is too slow for that. So a block of kTile x kTile threads makes a tile of c, in steps along k. In
// each, it loads a tile of a and one of b into shared memory, each thread one number of either. Then each
// thread multiplies a row of the one by a column of the other. A number is so read from memory once for a
// tile of c, not once for a number of c.
//
// Write matmul(). Thread (threadIdx.x, threadIdx.y) of block (blockIdx.x, blockIdx.y) makes row
// kTile * blockIdx.y + threadIdx.y, column kTile * blockIdx.x + threadIdx.x of c. The launch has enough
// blocks for c. No size need be a multiple of kTile: what lies outside of a and b counts as 0.
//
// Each step uses the tiles twice, to fill and to read them. What must be over before either may begin? To
// read afterwards: kernels/cuda/matmul.h, where a thread makes 64 numbers of c.

#include "learn/given/kernel.h"

constexpr int kTile = 16;

__global__ void matmul(learn::Global<const float> a, learn::Global<const float> b, learn::Global<float> c,
                       int m, int n, int k) {
  // Your code.
}
