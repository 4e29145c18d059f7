#pragma once
// What stands for tensor-core instructions and asynchronous copies in the emulator; keel/runtime/cuda/tensor_core.h
// says what they do.

#include <cstddef>
#include <source_location>

namespace keel::emulation {

// T is bf16 or f16.
template <class T>
void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, const std::source_location& where);

void load_matrices(unsigned* out, int count, bool transposed, const std::byte* row, const std::source_location& where);

// The running thread's copies. finish_copies() lets arrive what is not in its `groups` newest groups; a copy that is in
// no group yet is newer than all of them.
void start_copy(std::byte* to, const std::byte* from, int bytes, const std::source_location& where);
void commit_copies();
void finish_copies(unsigned groups);

}  // namespace keel::emulation
