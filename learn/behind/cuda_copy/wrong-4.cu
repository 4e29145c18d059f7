// says: Each thread copies a stretch of its own
#include "learn/given/kernel.h"

__global__ void copy(learn::Global<const float> from, learn::Global<float> to, int count) {
  const int threads = gridDim.x * blockDim.x, each = (count + threads - 1) / threads;
  const int first = (blockIdx.x * blockDim.x + threadIdx.x) * each;
  for (int i = first; i < first + each && i < count; ++i) to[i] = from[i];
}
