// says: it must stay for the barriers
#include "learn/given/kernel.h"

constexpr int kTile = 16;

__global__ void matmul(learn::Global<const float> a, learn::Global<const float> b, learn::Global<float> c,
                       int m, int n, int k) {
  LEARN_SHARED(float, of_a, kTile* kTile);
  LEARN_SHARED(float, of_b, kTile* kTile);
  const int x = threadIdx.x, y = threadIdx.y;
  const int i = blockIdx.y * kTile + y, j = blockIdx.x * kTile + x;
  if (i >= m || j >= n) return;
  float sum = 0;
  for (int first = 0; first < k; first += kTile) {
    of_a[y * kTile + x] = i < m && first + x < k ? a[i * k + first + x] : 0.0f;
    of_b[y * kTile + x] = first + y < k && j < n ? b[(first + y) * n + j] : 0.0f;
    __syncthreads();
    for (int p = 0; p < kTile; ++p) sum += of_a[y * kTile + p] * of_b[p * kTile + x];
    __syncthreads();
  }
  if (i < m && j < n) c[i * n + j] = sum;
}
