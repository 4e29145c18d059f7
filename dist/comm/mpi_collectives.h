#pragma once
// The collectives of the MPI library itself as a communicator: what keel's own are measured against, and a choice where
// a machine's MPI knows its network better.

#include <functional>

#include "keel/dist/comm/mpi_transport.h"

namespace keel {

struct MpiCollectiveOptions {
  // A collective blocks inside MPI, which knows no time-out: ranks that do not agree on what they ask for hang or get
  // wrong numbers, unlike with keel's own algorithms. After this time `stuck` is called, in a thread of its own; it may
  // end the program, and MPI must not be called from it.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  std::function<void(const std::string& what)> stuck = {};
};

// Every rank of `communicator`, which is duplicated, calls it. Tensors must be the processor's; what begin() returns
// has finished. Sums in half precision are not offered (MPI has no such type), nor are more than 2^31 - 1 elements.
// What the library sends is not known: the traffic counts collectives alone. A failure is one of this rank alone.
// Without a node map it has that of the machine.
std::unique_ptr<Communicator> make_mpi_collectives(MPI_Comm communicator, const MpiCollectiveOptions& options = {},
                                                   std::vector<int> nodes = {});

// "Open MPI v4.1.4, ...": the first line of what the library says of itself.
std::string mpi_library_version();

}  // namespace keel
