#pragma once
// The ranks that this process is: one of an MPI program that a launcher started, one of several that
// find each other by an address, several threads, or one alone.

#include <functional>

#include "keel/dist/comm/communicator.h"
#include "launch_plan.h"

namespace keel::cli {

// Calls `work` with each of them and returns what it returned, for rank 0 where ranks are threads. `threads` asks for
// that many ranks as threads of this process; with 0 the environment tells whether this process was started as one of
// several ranks, and how they find each other. MPI is started only by a launcher's word.
//
// What `work` throws reaches the others' collectives as an Error of kind peer. Alone and with threads it is thrown on.
// Among processes the first rank says an AgreedError, and any other error the rank that began; then all end.
int on_ranks(int threads, const std::function<int(Communicator&)>& work);

// The MPI that this build uses; none without it.
Launcher::Kind mpi_of_this_build();

}  // namespace keel::cli
