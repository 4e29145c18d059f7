#pragma once
// What is wrong with a call of the emulated NCCL, as far as its rank alone can tell.

#include <string>

#include "keel/runtime/emulation/communicator.h"

namespace keel::emulation {

// Why the rank cannot make this call in this stream, or "".
std::string fault_of(const ncclComm& comm, const Call& call, cudaStream_t stream);

}  // namespace keel::emulation
