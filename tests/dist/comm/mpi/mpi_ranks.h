#pragma once
// The processes of the MPI test program, and the calls of MPI that it counts.

#include <mpi.h>

#include <cstdint>

#include "tests/dist/comm/ranks.h"

namespace keel::testing {

int process();
int processes();

// Calls f with a communicator of the first n processes, on these; then all processes meet.
void on_first_processes(int n, const std::function<void(MPI_Comm)>& f);

// Counted by the MPI profiling interface (mpi_counts.cpp), from the start of the program.
struct MpiCounts {
  std::int64_t messages = 0, bytes = 0;  // sent point to point
  std::int64_t communicators = 0;        // made and not freed
  std::int64_t of_world = 0;             // calls that name MPI_COMM_WORLD
  std::int64_t starts_and_ends = 0;      // of MPI
  std::int64_t of_other_threads = 0;     // calls by others than the first
};
const MpiCounts& mpi_counts();

}  // namespace keel::testing
