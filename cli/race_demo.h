#pragma once
// A sum over a block of threads in the emulator, for `keel race-demo`.

namespace keel::cli {

enum class ThreadOrder : unsigned char { first_to_last, last_to_first };

// 1 + 2 + ... + 64 by 64 threads of emulated:0, with or without the barrier between the rounds. Throws what the
// emulator finds wrong, races only when it is to look for them.
float sum_of_block(bool with_barrier, ThreadOrder order, bool look_for_races);

// Of a GPU as kernels are written for it.
int threads_of_a_warp();

}  // namespace keel::cli
