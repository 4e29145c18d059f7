#pragma once
// MPI for a program that has not started it: the one place that knows all of an MPI program's processes.

#include "keel/dist/comm/mpi_transport.h"

namespace keel {

// Starts MPI, and ends it again; does neither where MPI runs already. The session that starts MPI must outlive all
// others, and live in the main thread.
class MpiSession {
 public:
  // Asks for MPI_THREAD_SERIALIZED and accepts less: MPI_THREAD_FUNNELED suffices without a thread for communication
  // (keel/dist/comm/background_communicator.h).
  MpiSession();
  // Ends MPI where this session started it, which waits for all processes. Not while an exception passes: some of them
  // may never come. The launcher ends them when this one exits without having ended MPI.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  bool has_started_mpi() const { return has_started_; }
  // What MPI gives: MPI_THREAD_SINGLE, _FUNNELED, _SERIALIZED or _MULTIPLE.
  int thread_level() const { return thread_level_; }
  // All processes.
  MPI_Comm all() const;
  // Ends every process of the program, also those that answer no more. For main(), where ranks could not agree to end.
  void end_all(int exit_code) noexcept;

 private:
  bool has_started_ = false;
  int thread_level_ = MPI_THREAD_SINGLE;
  int exceptions_;
};

}  // namespace keel
