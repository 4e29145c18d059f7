#pragma once
// Calls of MPI whose failures become an Error.

#include "keel/dist/comm/mpi_transport.h"
#include "keel/runtime/error.h"

namespace keel {

// Whether MPI may be called.
inline bool mpi_runs() {
  int started = 0, ended = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  return started && !ended;
}

// `code` is what the function of that name returned.
inline void mpi_call(const char* name, ErrorKind kind, int code) {
  if (code == MPI_SUCCESS) [[likely]]
    return;
  char text[MPI_MAX_ERROR_STRING] = "an unknown error";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(concat(name, ": ", text), kind);
}

}  // namespace keel
