#pragma once
// The ranks that this process is: one of an MPI program that a launcher started, one of several that
// find each other by an address, several threads, or one alone.

#include <functional>
#include <memory>
#include <string>

#include "keel/dist/comm/communicator.h"
#include "keel/runtime/host_name.h"
#include "launch_plan.h"

namespace keel::cli {

// What a rank does beside its work. May be called from several threads.
struct RankHooks {
  // Whether something asked this process to end, and may end it soon: then a rank that waits says what it waits for.
  std::function<bool()> is_worried = {};
  // Takes what a rank says beside its work, and why it ends early, for its log.
  std::function<void(int rank, const std::string& line)> log = {};
};

// Calls `work` with each rank of this process and returns what it returned; where ranks are threads, what rank 0's
// returned. `threads` asks for that many ranks as threads of this process. With 0 the environment tells whether this
// process was started as one of several ranks, and how they find each other. MPI is started only where a launcher's
// variables say so.
//
// What `work` throws reaches the others' collectives as an Error of kind peer. The first rank prints an AgreedError,
// and any other error is printed by the rank that began; then all end. A rank alone throws it on. exit() in the midst
// of the work counts as such an error.
//
// KEEL_TIMEOUT says how long a rank waits for the others; an Error where it is no such number.
int on_ranks(int threads, const std::function<int(Communicator&)>& work, const RankHooks& hooks = {});

// A communicator of the ranks that on_ranks() made, by the collectives of the MPI library itself; null, and the reason,
// where they are no processes of MPI. A call that does not come back in KEEL_TIMEOUT ends the program. Every rank calls
// it.
std::unique_ptr<Communicator> mpi_collectives_of(Communicator& ranks, std::string& why_not);
// What the MPI of this process says of itself; "none" where none runs.
std::string mpi_version();
// "threads of one process", for tables.
std::string ranks_by(bool threads);

// The MPI that this build uses; none without it.
Launcher::Kind mpi_of_this_build();

}  // namespace keel::cli
