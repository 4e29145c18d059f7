// The MPI profiling interface: these functions stand before those of the library, which are also called PMPI_...
// They are the calls of MPI that keel makes.

#include <thread>

#include "tests/dist/comm/mpi/mpi_ranks.h"

namespace keel::testing {
namespace {

MpiCounts counts;
const std::thread::id first_thread = std::this_thread::get_id();

void note(MPI_Comm comm) {
  counts.of_world += comm == MPI_COMM_WORLD;
  counts.of_other_threads += std::this_thread::get_id() != first_thread;
}

}  // namespace

const MpiCounts& mpi_counts() { return counts; }

}  // namespace keel::testing

using keel::testing::counts;
using keel::testing::note;

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  int size = 0;
  PMPI_Type_size(type, &size);
  ++counts.messages;
  counts.bytes += std::int64_t{count} * size;
  note(comm);
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request) {
  note(comm);
  return PMPI_Irecv(data, count, type, from, tag, comm, request);
}
int MPI_Recv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
  note(comm);
  return PMPI_Recv(data, count, type, from, tag, comm, status);
}
int MPI_Iprobe(int from, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  note(comm);
  return PMPI_Iprobe(from, tag, comm, flag, status);
}
int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  note(MPI_COMM_NULL);
  return PMPI_Test(request, flag, status);
}
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) {
  note(comm);
  ++counts.communicators;
  return PMPI_Comm_dup(comm, made);
}
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
  note(comm);
  const int code = PMPI_Comm_split(comm, color, key, made);
  counts.communicators += *made != MPI_COMM_NULL;
  return code;
}
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made) {
  note(comm);
  const int code = PMPI_Comm_split_type(comm, type, key, info, made);
  counts.communicators += *made != MPI_COMM_NULL;
  return code;
}
int MPI_Comm_free(MPI_Comm* comm) {
  note(*comm);
  --counts.communicators;
  return PMPI_Comm_free(comm);
}
int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler) {
  note(comm);
  return PMPI_Comm_set_errhandler(comm, handler);
}
int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  note(comm);
  return PMPI_Bcast(data, count, type, root, comm);
}
int MPI_Allgather(const void* data, int count, MPI_Datatype type, void* all, int each, MPI_Datatype all_type,
                  MPI_Comm comm) {
  note(comm);
  return PMPI_Allgather(data, count, type, all, each, all_type, comm);
}
int MPI_Init_thread(int* argc, char*** argv, int wanted, int* given) {
  ++counts.starts_and_ends;
  return PMPI_Init_thread(argc, argv, wanted, given);
}
int MPI_Finalize() {
  ++counts.starts_and_ends;
  return PMPI_Finalize();
}
int MPI_Abort(MPI_Comm comm, int code) {
  ++counts.starts_and_ends;
  return PMPI_Abort(comm, code);
}
