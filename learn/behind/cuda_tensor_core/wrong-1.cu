// says: a[1] and a[2] have changed places
#include "learn/given/kernel.h"
#include "learn/given/tensor_core.h"

__global__ void product(learn::Global<const learn::bf16> a, learn::Global<const learn::bf16> b,
                        learn::Global<float> c, int m, int n, int k) {
  const int row = 16 * blockIdx.y, column = 8 * blockIdx.x, g = threadIdx.x / 4, t = threadIdx.x % 4;
  float sum[4] = {};
  for (int first = 0; first < k; first += 16) {
    unsigned of_a[4], of_b[2];
    for (int r = 0; r < 4; ++r) {
      const int at = (row + g + 8 * (r / 2)) * k + first + 2 * t + 8 * (r % 2);
      of_a[r] = learn::pack(a[at], a[at + 1]);
    }
    for (int r = 0; r < 2; ++r) {
      const int at = (first + 2 * t + 8 * r) * n + column + g;
      of_b[r] = learn::pack(b[at], b[at + n]);
    }
    learn::multiply_add(sum, of_a, of_b);
  }
  for (int i = 0; i < 4; ++i) c[(row + g + 8 * (i / 2)) * n + column + 2 * t + i % 2] = sum[i];
}
