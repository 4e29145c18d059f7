// cuda_stochastic_update: an update of bf16 weights that is right on average
//
// bf16 is the upper half of a float: from 1 to 2, its numbers are 1/128 apart. So a step of 1/1000 from 1
// leads back to 1 if it is rounded to the nearest, however often it is made, and the model does not learn.
// Rounding at random helps (Gupta et al. 2015). A number between two neighbours goes to either of them, to
// the nearer one more often, so that on average it stays what it is. Of the bits of a float,
//
//   the upper 16   are the neighbour towards 0,
//   the lower 16   say how far it is from there to the other neighbour, in 65536ths.
//
// So the number must become the neighbour away from 0 with probability (lower 16 bits) / 65536.
//
// Write update(): w[i] becomes w[i] - rate * gradient[i], computed as a float and rounded at random, for each
// i below count. As in cuda_copy, a launch may have any shape, and each must give the same weights.
// learn::random_word(seed, step, i) is 32 random bits for element i at this step. static_cast<float>(w[i])
// widens a weight, __float_as_uint(x) gives the bits of a float, and bf16::from_bits(u) is the bf16 of 16
// bits. All numbers are finite. To read afterwards: kernels/stochastic_rounding.h and
// kernels/cuda/update_kernel.h.

#include "learn/given/kernel.h"
#include "learn/given/random_word.h"

using learn::bf16;

__global__ void update(learn::Global<bf16> w, learn::Global<const float> gradient, int count, float rate,
                       std::uint64_t seed, std::uint32_t step) {
  // Your code.
}
