// The plain loop over MPI_Allreduce that `keel comm --algorithms backend` is held against: mpi.h and nothing of keel.
//
// usage: MPI launcher -n N bench_mpi_allreduce BYTES CALLS WARMUP [single]
//
// As the OSU micro-benchmarks do it: fp32, two buffers, the clock around each call, the mean over calls and ranks. MPI
// is started with MPI_THREAD_SERIALIZED, as keel starts it, since Open MPI takes its locks at every level but `single`.
// Prints one line of JSON: mean time and quartile of the times of a call in microseconds.

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

int main(int argc, char** argv) {
  const bool is_single = argc == 5 && std::strcmp(argv[4], "single") == 0;
  int level = 0;
  MPI_Init_thread(&argc, &argv, is_single ? MPI_THREAD_SINGLE : MPI_THREAD_SERIALIZED, &level);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 4 && !is_single) {
    if (rank == 0) std::fprintf(stderr, "usage: bench_mpi_allreduce BYTES CALLS WARMUP [single]\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const int count = std::atoi(argv[1]) / static_cast<int>(sizeof(float)), calls = std::atoi(argv[2]),
            warmup = std::atoi(argv[3]);
  std::vector<float> given(static_cast<std::size_t>(count)), gotten(given);
  std::vector<double> times(static_cast<std::size_t>(calls));
  for (int i = 0; i < warmup; ++i)
    MPI_Allreduce(given.data(), gotten.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  for (double& time : times) {
    const double begin = MPI_Wtime();
    MPI_Allreduce(given.data(), gotten.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    time = MPI_Wtime() - begin;
  }
  // Each call as its slowest rank saw it, for the quartile.
  std::vector<double> slowest(times);
  MPI_Allreduce(times.data(), slowest.data(), calls, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  double mine = 0, sum = 0;
  for (const double time : times) mine += time / calls;
  MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  std::sort(slowest.begin(), slowest.end());
  if (rank == 0)
    std::printf("{\"bytes\": %s, \"mean_us\": %.4f, \"p25_us\": %.4f}\n", argv[1], sum / size * 1e6,
                slowest[slowest.size() / 4] * 1e6);
  MPI_Finalize();
}
