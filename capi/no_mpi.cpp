#include "keel/capi/mpi_ranks.h"

namespace keel::capi {

std::unique_ptr<Communicator> make_mpi_ranks(std::int64_t) {
  throw Error("this build of keel has no MPI; build it with -D KEEL_MPI=ON", ErrorKind::unsupported);
}

}  // namespace keel::capi
