// cuda_sum: a sum in shared memory, and its races
//
// The kernel below adds up each row of x: sums[r] = x[r][0] + x[r][1] + ... + x[r][columns - 1]. A block
// takes a row, and then the next one that is left for it. Its threads share out the numbers of the row. Each
// puts its own sum into shared memory, and they add those up in rounds: a round adds the upper half of what
// is left to the lower half.
//
// Threads of a block run in any order. __syncthreads() waits until all of them have come: what stands before
// it is over before anything behind it begins. Without one, a thread may read what another has not yet
// written, or write what another has not yet read. That is a race. On a GPU the sum is right all the same, on
// most days.
//
// The kernel has two races. Find and mend both. A block always has kThreads threads. To read afterwards:
// kernels/cuda/reduce.cu, and reduce_block() in kernels/cuda/device.h; `build/keel race-demo` shows what a
// race does.

#include "learn/given/kernel.h"

constexpr int kThreads = 128;

__global__ void sum(learn::Global<const float> x, learn::Global<float> sums, int rows, int columns) {
  LEARN_SHARED(float, partial, kThreads);
  const int t = threadIdx.x;
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    float mine = 0;
    for (int i = t; i < columns; i += kThreads) mine += x[row * columns + i];
    partial[t] = mine;
    for (int half = kThreads / 2; half > 0; half /= 2) {
      // In rounds of half a warp and less, the threads step together and need no barrier. (Is that so?)
      if (half >= 32) __syncthreads();
      if (t < half) partial[t] += partial[t + half];
    }
    if (t == 0) sums[row] = partial[0];
  }
}
