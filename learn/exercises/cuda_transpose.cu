// cuda_transpose: a transposition that reads and writes neighbours
//
// x has `rows` rows of `columns` numbers, one row after the other. y gets the columns of x as its rows:
//
//   y[c * rows + r] = x[r * columns + c]
//
// If neighbouring threads read neighbours in x, what they write lies far apart in y. Memory moves sectors of
// 32 bytes, so one number of each sector is used and seven are wasted. The way out is shared memory. A block
// reads a tile of kTile x kTile numbers along the rows of x, waits, and writes it along the rows of y:
// neighbours lie side by side both times.
//
// Write transpose_grid(), the blocks that a launch needs, and transpose(). A block has (kTile, 8) threads:
// threadIdx.x from 0 to 31, which are one warp, and threadIdx.y from 0 to 7. So each thread moves four
// numbers of a tile. Neither rows nor columns need be multiples of kTile. LEARN_SHARED(float, tile, n); in
// the kernel is CUDA's `__shared__ float tile[n];`, with its accesses checked.
//
// Shared memory has 32 banks: the word at place i lies in bank i % 32. A bank gives the threads of a warp one
// word at a time, so they should want words of different banks. To read afterwards: copy_transposed_kernel in
// kernels/cuda/copy.cu.

#include "learn/given/kernel.h"

constexpr int kTile = 32;

dim3 transpose_grid(int rows, int columns) {
  // Your code.
  return dim3(1, 1);
}

__global__ void transpose(learn::Global<const float> x, learn::Global<float> y, int rows, int columns) {
  // Your code.
}
