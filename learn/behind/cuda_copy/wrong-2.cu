// says: Each thread copies one number and no more
#include "learn/given/kernel.h"

__global__ void copy(learn::Global<const float> from, learn::Global<float> to, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) to[i] = from[i];
}
