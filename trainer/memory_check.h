#pragma once
// Whether a run fits into the memory of its machine, before anything is allocated.

#include <cstdint>

#include "keel/dist/comm/communicator.h"
#include "keel/runtime/memory_limit.h"
#include "keel/trainer/config.h"

namespace keel {

// An Error where what the ranks of this machine need, by the plan (keel/trainer/run_plan.h), is more than the limit.
// Activations are not part of it. The memory of GPUs is not looked at, only what they have their processor keep. The
// precision must have been decided. No check where the configuration asks for none (check_memory), or where the
// optimizer keeps gradients as rows, whose memory follows from the data. Each rank by itself.
void check_memory(const Config& config, const Communicator& ranks, std::int64_t vocabulary, bool on_processor,
                  const MemoryLimit& limit = memory_limit());

}  // namespace keel
