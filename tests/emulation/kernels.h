#pragma once
// Kernels of one thread that tests of streams and graphs start.

#include "keel/runtime/cuda/launch.h"

namespace keel::emulation {

__global__ inline void store(int* to, int value) { *to = value; }
__global__ inline void add_from(const int* from, int* to) { *to = *from + 1; }

}  // namespace keel::emulation
