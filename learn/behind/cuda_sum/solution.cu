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
      __syncthreads();
      if (t < half) partial[t] += partial[t + half];
    }
    if (t == 0) sums[row] = partial[0];
    __syncthreads();
  }
}
