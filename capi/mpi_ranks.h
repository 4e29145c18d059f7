#pragma once
// The communicator of an MPI program that a host gives as a Fortran handle.

#include <cstdint>
#include <memory>

#include "keel/dist/comm/communicator.h"

namespace keel::capi {

// An Error of kind unsupported in a build without MPI.
std::unique_ptr<Communicator> make_mpi_ranks(std::int64_t fortran_handle);

}  // namespace keel::capi
