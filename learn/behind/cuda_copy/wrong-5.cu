// says: Every block copies the same numbers
#include "learn/given/kernel.h"

__global__ void copy(learn::Global<const float> from, learn::Global<float> to, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = from[i];
}
