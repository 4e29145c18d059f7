// says: No tensor core was used
#include "learn/given/kernel.h"
#include "learn/given/tensor_core.h"

__global__ void product(learn::Global<const learn::bf16> a, learn::Global<const learn::bf16> b,
                        learn::Global<float> c, int m, int n, int k) {
  for (int at = threadIdx.x; at < 16 * 8; at += 32) {
    const int i = 16 * blockIdx.y + at / 8, j = 8 * blockIdx.x + at % 8;
    float sum = 0;
    for (int p = 0; p < k; ++p) sum += static_cast<float>(a[i * k + p]) * static_cast<float>(b[p * n + j]);
    c[i * n + j] = sum;
  }
}
