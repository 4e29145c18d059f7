#pragma once
// Ranks as processes of an MPI program: the transport for codes that bring their communicator, and for keel itself.
//
// MPI is called by the thread that calls these functions alone, so MPI_THREAD_FUNNELED suffices; where MPI offers no
// more, another thread than the one that started it is refused. Other threads get no alarm: the host may be in a call
// of its own at any time. MPI is neither started nor ended (keel/dist/comm/mpi_session.h is for programs that have not
// started it). MPI_COMM_WORLD is never used, and no error handler but that of keel's own communicators is touched.

#include <mpi.h>

#include "keel/dist/comm/transport_communicator.h"

namespace keel {

struct MpiOptions {
  // Bytes of one MPI message; a larger one travels as several. The same on every rank.
  std::size_t largest_message = std::size_t{4} << 20;
  // How many MPI tags are used, the same on every rank. Messages under way whose tags differ by a multiple of it are
  // refused. Every MPI has 32767; whether it has more, only MPI_COMM_WORLD tells.
  int tags = 32'767;
};

class MpiTransport : public Transport {
 public:
  // The node of each rank: those that share memory have one number, counted from 0 in the order of their first ranks.
  // Every rank calls it; blocks.
  virtual std::vector<int> nodes() = 0;
};

// Every rank of `communicator`, which is duplicated twice, calls it; its ranks are "the program" of Transport::fail.
// Whoever destroys the last transport that was made of it waits up to a second for the other ranks to do so. Where they
// do not, or where ranks failed, the duplicates stay until MPI ends, as messages may still be on their way in them. The
// transport may outlive MPI, but is of no use then.
std::unique_ptr<MpiTransport> make_mpi_transport(MPI_Comm communicator, const MpiOptions& options = {});

// A communicator over it. Without a node map in the options, it has that of the machine.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm communicator, CommunicatorOptions options = {},
                                                    const MpiOptions& mpi = {});

}  // namespace keel
