// says: Its place in the tile must become 0
#include "learn/given/kernel.h"

constexpr int kTile = 16;

__global__ void matmul(learn::Global<const float> a, learn::Global<const float> b, learn::Global<float> c,
                       int m, int n, int k) {
  LEARN_SHARED(float, of_a, kTile* kTile);
  LEARN_SHARED(float, of_b, kTile* kTile);
  const int x = threadIdx.x, y = threadIdx.y;
  const int i = blockIdx.y * kTile + y, j = blockIdx.x * kTile + x;
  float sum = 0;
  for (int first = 0; first < k; first += kTile) {
    if (i < m && first + x < k) of_a[y * kTile + x] = a[i * k + first + x];
    if (first + y < k && j < n) of_b[y * kTile + x] = b[(first + y) * n + j];
    __syncthreads();
    for (int p = 0; p < kTile; ++p) sum += of_a[y * kTile + p] * of_b[p * kTile + x];
    __syncthreads();
  }
  if (i < m && j < n) c[i * n + j] = sum;
}
