// cuda_warp_sum: a sum that never leaves the registers
//
// The 32 threads of a warp are its lanes: lane = threadIdx.x % 32. They read each other's registers:
//
//   __shfl_down_sync(mask, value, d)   gives the `value` of lane + d; where there is no such lane, one's own
//   __shfl_xor_sync(mask, value, d)    gives the `value` of lane ^ d
//
// The mask has bit i where lane i takes part. All those lanes must make the call, and a lane may be read only
// if it takes part. Otherwise a GPU waits for ever, or gives anything.
//
// Write warp_sum(). Warp w of the grid adds up the numbers from x[32 * w] on, at most 32 of them, and sums[w]
// becomes their sum. sums has one element for each 32 numbers, and one more for a rest. A launch has blocks
// of 32, 64, 96 ... threads, and may have warps without any number. Each thread reads one number at most.
// Shared memory is not needed: five rounds of shuffles are enough. To read afterwards: reduce_warp() in
// kernels/cuda/device.h.

#include "learn/given/kernel.h"

__global__ void warp_sum(learn::Global<const float> x, learn::Global<float> sums, int count) {
  // Your code.
}
