// cuda_stochastic_update: an update of bf16 weights that is right on average
//
// bf16 is the upper half of a float: between 1 and 2 its numbers are 1/128 apart. A step of 1/1000 from 1
// leads to 1 again if it is rounded to the nearest, as often as it is made, and the model does not learn.
// Rounding up or down at random helps (Gupta et al. 2015): a number between two neighbours goes to either of
// them, to the nearer one more often, so that on average it stays what it is. Of the float's bits,
//
//   upper 16   the neighbour towards 0
//   lower 16   how far it is to the other neighbour, in 65536ths
//
// so the number must go away from 0 with probability lower / 65536.
//
// Write update(): w[i] becomes w[i] - rate * gradient[i], computed as a float and rounded so, for each i
// below count and for any launch, as in cuda_copy. learn::random_word(seed, step, i) has 32 random bits for
// element i at this step. The same weights must come of every launch, whatever its blocks and threads. Use
// __float_as_uint(x), which has the bits of a float, bf16::from_bits(u) and static_cast<float>(w[i]). All
// numbers are finite. To read afterwards: kernels/stochastic_rounding.h, kernels/cuda/update_kernel.h.

#include "learn/given/kernel.h"
#include "learn/given/random_word.h"

using learn::bf16;

__global__ void update(learn::Global<bf16> w, learn::Global<const float> gradient, int count, float rate,
                       std::uint64_t seed, std::uint32_t step) {
  // Your code.
}
