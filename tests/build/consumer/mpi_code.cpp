// A code with MPI of its own: it hands some of its processes to keel, sums its own memory, and ends MPI itself.
#include "keel/dist/comm/mpi_transport.h"

int main(int argc, char** argv) {
  int level = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);

  double field[3] = {1, 2, 1.0 * rank};
  int ranks = 0;
  {
    const keel::Context context = keel::Context::create();
    const keel::Tensor view = keel::from_external(context, field, {3}, {1}, keel::DType::f64);
    const auto communicator = keel::make_mpi_communicator(half);
    communicator->all_reduce(view).wait();
    ranks = communicator->size();
  }

  int sum = 0;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, half);
  MPI_Comm_free(&half);
  MPI_Finalize();
  return field[0] == ranks && field[1] == 2 * ranks && field[2] == sum ? 0 : 1;
}
