#include "keel/capi/mpi_ranks.h"

#include <limits>

#include "keel/dist/comm/mpi_call.h"

namespace keel::capi {

std::unique_ptr<Communicator> make_mpi_ranks(std::int64_t fortran_handle) {
  KEEL_CHECK(mpi_runs(), "MPI does not run; the host starts it before, and ends it afterwards");
  using Limits = std::numeric_limits<MPI_Fint>;
  const bool is_integer = fortran_handle >= Limits::min() && fortran_handle <= Limits::max();
  const MPI_Comm communicator = is_integer ? MPI_Comm_f2c(static_cast<MPI_Fint>(fortran_handle)) : MPI_COMM_NULL;
  // An MPI turns a number that it does not know into the null communicator or into nothing.
  KEEL_CHECK(communicator != MPI_COMM_NULL && communicator != MPI_Comm{}, "communicator ", fortran_handle,
             " is none of MPI's; give MPI_Comm_c2f(comm), or in Fortran the communicator itself");
  return make_mpi_communicator(communicator);
}

}  // namespace keel::capi
