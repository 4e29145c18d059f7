// says: A lane without a number must take part with 0
#include "learn/given/kernel.h"

__global__ void warp_sum(learn::Global<const float> x, learn::Global<float> sums, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float value = x[i];
  for (int d = 16; d > 0; d /= 2) value += __shfl_down_sync(0xffffffffu, value, d);
  if (i % 32 == 0 && i < count) sums[i / 32] = value;
}
