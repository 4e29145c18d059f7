#pragma once
// Ranks as threads of this process: for tests, for `--threads`, and for machines without MPI.

#include <functional>

#include "keel/dist/comm/transport_communicator.h"

namespace keel {

// Calls f(communicator) on n threads, one for each rank, and returns when all have. Where a rank throws, the others'
// collectives throw an Error of kind peer that names it; the exception of the rank that began it is rethrown.
void run_ranks(int n, const std::function<void(Communicator&)>& f, const CommunicatorOptions& options = {});

}  // namespace keel
