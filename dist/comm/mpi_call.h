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

// Whether this thread may call MPI: where it was started for one thread, that one alone.
inline bool may_call_mpi() {
  int level = MPI_THREAD_SINGLE, is_main = 0;
  MPI_Query_thread(&level);
  if (level >= MPI_THREAD_SERIALIZED) return true;
  MPI_Is_thread_main(&is_main);
  return is_main != 0;
}

inline void check_mpi_thread(bool may_call) {
  if (!may_call) [[unlikely]]
    throw Error(
        "this thread may not call MPI, which was started for one thread (MPI_THREAD_SINGLE or _FUNNELED), the one that "
        "started it; call keel from there, or start MPI with MPI_THREAD_SERIALIZED",
        ErrorKind::unsupported);
}

// An Error where no group of ranks can be made of `communicator` here.
inline void check_callers(MPI_Comm communicator) {
  KEEL_CHECK(mpi_runs(), "MPI does not run: a program starts it before it makes communicators of keel's");
  KEEL_CHECK(communicator != MPI_COMM_NULL, "MPI_COMM_NULL has no ranks");
  check_mpi_thread(may_call_mpi());
  int joins_two_groups = 0;
  mpi_call("MPI_Comm_test_inter", ErrorKind::input, MPI_Comm_test_inter(communicator, &joins_two_groups));
  KEEL_CHECK(!joins_two_groups,
             "an intercommunicator joins two groups, and keel's ranks are one; MPI_Intercomm_merge makes one of both");
}

}  // namespace keel
