// says: A thread whose number is count or more must do nothing
#include "learn/given/kernel.h"

__global__ void copy(learn::Global<const float> from, learn::Global<float> to, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  to[i] = from[i];
}
