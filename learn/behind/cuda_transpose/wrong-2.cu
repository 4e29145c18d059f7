// says: Go through a tile in shared memory
#include "learn/given/kernel.h"

constexpr int kTile = 32;

dim3 transpose_grid(int rows, int columns) {
  return dim3((columns + kTile - 1) / kTile, (rows + kTile - 1) / kTile);
}

__global__ void transpose(learn::Global<const float> x, learn::Global<float> y, int rows, int columns) {
  const int c = blockIdx.x * kTile + threadIdx.x;
  for (int j = threadIdx.y; j < kTile; j += blockDim.y) {
    const int r = blockIdx.y * kTile + j;
    if (r < rows && c < columns) y[c * rows + r] = x[r * columns + c];
  }
}
