#include "keel/dist/comm/mpi_session.h"

#include <exception>

#include "keel/dist/comm/mpi_call.h"

namespace keel {

MpiSession::MpiSession() : exceptions_(std::uncaught_exceptions()) {
  int runs = 0, ended = 0;
  MPI_Initialized(&runs);
  MPI_Finalized(&ended);
  KEEL_CHECK(!ended, "MPI cannot be started again: it has ended in this process");
  if (runs) {
    mpi_call("MPI_Query_thread", ErrorKind::internal, MPI_Query_thread(&thread_level_));
    return;
  }
  mpi_call("MPI_Init_thread", ErrorKind::internal,
           MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &thread_level_));
  has_started_ = true;
}

MpiSession::~MpiSession() {
  if (has_started_ && mpi_runs() && std::uncaught_exceptions() == exceptions_) MPI_Finalize();
}

MPI_Comm MpiSession::all() const { return MPI_COMM_WORLD; }

void MpiSession::end_all(int exit_code) noexcept {
  if (mpi_runs()) MPI_Abort(MPI_COMM_WORLD, exit_code);
}

}  // namespace keel
