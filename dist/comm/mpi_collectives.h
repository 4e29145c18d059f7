#pragma once
// The collectives of the MPI library itself as a communicator: what keel's own are measured against, and a choice where
// a machine's MPI knows its network better.

#include <functional>

#include "keel/dist/comm/mpi_transport.h"

namespace keel {

struct MpiCollectiveOptions {
  // A collective blocks inside MPI, which knows no time-out. Unlike with keel's own algorithms, ranks that ask for
  // different collectives hang or get wrong numbers. After this time `stuck` is called, in a thread of its own; it may
  // end the program, and must not call MPI.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  std::function<void(const std::string& what)> stuck = {};
};

// Every rank of `communicator`, which is duplicated, calls it. Tensors must lie in the processor's memory; what begin()
// returns has finished. There are no sums in half precision (MPI has no such type), and no tensors of more than 2^31 -
// 1 elements. What the library sends is not known, so the traffic counts collectives alone. A failure stays with its
// rank. Without a node map it has that of the machine.
std::unique_ptr<Communicator> make_mpi_collectives(MPI_Comm communicator, const MpiCollectiveOptions& options = {},
                                                   std::vector<int> nodes = {});

// "Open MPI v4.1.4, ...": the first line of what the library says of itself.
std::string mpi_library_version();

}  // namespace keel
