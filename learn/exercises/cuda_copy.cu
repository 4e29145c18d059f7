// cuda_copy: a kernel that copies, whatever the size of its grid
//
// A kernel is a function that many threads run. They come in blocks, and all blocks of a launch are its grid:
//
//   blockIdx.x, gridDim.x     the number of this block, counted from 0, and how many blocks there are
//   threadIdx.x, blockDim.x   the number of this thread in its block, and how many threads a block has
//
// So the grid has gridDim.x * blockDim.x threads, and this one is number blockIdx.x * blockDim.x +
// threadIdx.x.
//
// Write copy(): to[i] becomes from[i] for each i from 0 to count - 1. The launch may have more threads than
// there are numbers, or fewer; then each thread takes several. CUDA's word for that is a grid-stride loop.
//
// The 32 threads of a warp are neighbours and step together. What they ask of memory at a time arrives in
// sectors of 32 bytes. So neighbouring threads should take neighbouring numbers: then each sector that
// arrives is used whole.
//
// learn::Global<float> stands for a float* here, and tells of an index that is wrong. To read afterwards:
// kernels/cuda/elementwise.cu and kernels/cuda/operand.h, where a thread takes eight numbers at a time.

#include "learn/given/kernel.h"

__global__ void copy(learn::Global<const float> from, learn::Global<float> to, int count) {
  // Your code.
}
