#pragma once
// Kernels of the tests of the runtime, behind functions that any C++ file may call.

#include "keel/runtime/tensor.h"

namespace keel::testing {

bool is_recording(const Context& context);  // keel::cuda's

// out = value, in f32, by blocks of so many threads; the kernel is called fill_kernel.
void fill_by_kernel(const Tensor& out, float value, unsigned threads = 64);

// Five threads write to four places of shared memory; the kernel is called overrun_kernel.
void overrun_shared_memory(const Tensor& out);

// out = 64, as the sum of what 64 threads write to a static array and to dynamic shared memory.
void add_up_shared_memory(const Tensor& out, std::size_t dynamic_bytes);

// The offsets, from the last multiple of 16 bytes, of a shared array of bytes and of an array of 16-bit words behind
// it.
void fetch_shared_offsets(const Tensor& out);

}  // namespace keel::testing
