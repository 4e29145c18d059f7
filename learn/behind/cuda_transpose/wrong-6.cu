// says: its place in y has the two exchanged
#include "learn/given/kernel.h"

constexpr int kTile = 32;
constexpr int kPitch = kTile + 1;

dim3 transpose_grid(int rows, int columns) {
  return dim3((columns + kTile - 1) / kTile, (rows + kTile - 1) / kTile);
}

__global__ void transpose(learn::Global<const float> x, learn::Global<float> y, int rows, int columns) {
  LEARN_SHARED(float, tile, kTile* kPitch);
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile, i = threadIdx.x;
  for (int j = threadIdx.y; j < kTile; j += blockDim.y)
    if (row + j < rows && column + i < columns) tile[j * kPitch + i] = x[(row + j) * columns + column + i];
  __syncthreads();
  for (int j = threadIdx.y; j < kTile; j += blockDim.y)
    if (row + j < columns && column + i < rows) y[(row + j) * rows + column + i] = tile[i * kPitch + j];
}
