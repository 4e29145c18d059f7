// A code in C with MPI that trains a model while it runs. Half of its processes solve an equation and learn its
// right-hand side from the solver's own memory; the others have work of their own.
//
// The equation: Lorenz 1996, "Predictability: a problem partly solved", equation 1, with u / 10 and 10 t in place of u
// and t. A ring of cells, each of which depends on two neighbours before it and one behind it; it never settles.

#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "keel/capi/keel.h"

#define CELLS 240  // of the whole ring
#define STEPS 600
#define FRAME_BEFORE 2
#define FRAME_BEHIND 1
#define NEIGHBOURS (FRAME_BEFORE + 1 + FRAME_BEHIND)

// What keel says is wrong ends this program; a code with a way to go on would take it.
static void must(keel_status status) {
  if (status == KEEL_OK) return;
  fprintf(stderr, "embed_c: %s: %s\n", keel_status_name(status), keel_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

// This process's part of the ring, with a frame of neighbours: field[FRAME_BEFORE] is its first cell.
typedef struct {
  MPI_Comm comm;
  int before, behind;  // ranks
  int cells;
  double *field, *rate;
} Ring;

static void fill_frame(Ring* ring) {
  double* u = ring->field + FRAME_BEFORE;
  MPI_Sendrecv(u + ring->cells - FRAME_BEFORE, FRAME_BEFORE, MPI_DOUBLE, ring->behind, 0, u - FRAME_BEFORE,
               FRAME_BEFORE, MPI_DOUBLE, ring->before, 0, ring->comm, MPI_STATUS_IGNORE);
  MPI_Sendrecv(u, FRAME_BEHIND, MPI_DOUBLE, ring->before, 1, u + ring->cells, FRAME_BEHIND, MPI_DOUBLE, ring->behind, 1,
               ring->comm, MPI_STATUS_IGNORE);
}

static void make_ring(Ring* ring, MPI_Comm comm) {
  int rank = 0, size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const int first = CELLS * rank / size;
  ring->comm = comm;
  ring->before = (rank + size - 1) % size;
  ring->behind = (rank + 1) % size;
  ring->cells = CELLS * (rank + 1) / size - first;
  ring->field = calloc((size_t)(ring->cells + FRAME_BEFORE + FRAME_BEHIND), sizeof(double));
  ring->rate = calloc((size_t)ring->cells, sizeof(double));
  if (ring->field == NULL || ring->rate == NULL) MPI_Abort(comm, 1);
  for (int i = 0; i < ring->cells; ++i) ring->field[FRAME_BEFORE + i] = 0.8 * sin(1 + 0.7 * (first + i) * (first + i));
  fill_frame(ring);
}

// du/dt of every cell.
static void find_rates(Ring* ring) {
  const double* u = ring->field + FRAME_BEFORE;
  for (int i = 0; i < ring->cells; ++i) ring->rate[i] = (u[i + 1] - u[i - 2]) * u[i - 1] - 0.1 * u[i] + 0.08;
}

// A step of time along the rates.
static void advance(Ring* ring) {
  for (int i = 0; i < ring->cells; ++i) ring->field[FRAME_BEFORE + i] += 0.02 * ring->rate[i];
  fill_frame(ring);
}

static void free_ring(Ring* ring) {
  free(ring->field);
  free(ring->rate);
}

// Whether the right-hand side was learned.
static int learn(MPI_Comm comm) {
  Ring ring;
  make_ring(&ring, comm);

  keel_settings* settings = NULL;
  must(keel_settings_create(&settings));
  must(keel_settings_set(settings, "threads", "1"));
  must(keel_settings_set(settings, "strategy", "zero2"));  // gradients and optimizer state are spread over the ranks
  keel_context* context = NULL;
  must(keel_context_create_mpi(MPI_Comm_c2f(comm), settings, &context));

  // Cell i and its neighbours are four numbers from field[i] on: windows that overlap, in the solver's own memory.
  keel_array *neighbourhoods = NULL, *rates = NULL, *answers = NULL;
  const int64_t windows[2] = {ring.cells, NEIGHBOURS}, overlapping[2] = {1, 1};
  must(keel_array_create(context, ring.field, KEEL_F64, KEEL_HOST, 2, windows, overlapping, &neighbourhoods));
  must(keel_array_create(context, ring.rate, KEEL_F64, KEEL_HOST, 1, windows, NULL, &rates));
  double* answer = calloc((size_t)ring.cells, sizeof(double));
  must(keel_array_create(context, answer, KEEL_F64, KEEL_HOST, 1, windows, NULL, &answers));

  keel_model* model = NULL;
  const int64_t widths[4] = {NEIGHBOURS, 32, 32, 1};
  must(keel_model_create_mlp(context, NULL, widths, 4, "tanh", "mse", &model));

  for (int step = 1; step <= STEPS; ++step) {
    find_rates(&ring);
    double loss = 0;
    must(keel_train_step(model, neighbourhoods, rates, 5e-3 * (1 - (step - 1.0) / STEPS), &loss, NULL, NULL));
    double mine = loss * ring.cells, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, comm);  // the code's own call, between keel's
    int rank = 0;
    must(keel_context_ranks(context, &rank, NULL));
    if (rank == 0 && (step == 1 || step % 200 == 0)) printf("step %3d  error %.4f\n", step, sqrt(all / CELLS));
    advance(&ring);
  }

  // A state that it has not seen: 200 steps later.
  for (int step = 0; step < 200; ++step) {
    find_rates(&ring);
    advance(&ring);
  }
  find_rates(&ring);
  must(keel_infer(model, neighbourhoods, answers));
  double mine[2] = {0, 0}, all[2] = {0, 0};
  for (int i = 0; i < ring.cells; ++i) {
    mine[0] += pow(answer[i] - ring.rate[i], 2);
    mine[1] += pow(ring.rate[i], 2);
  }
  MPI_Allreduce(mine, all, 2, MPI_DOUBLE, MPI_SUM, comm);

  must(keel_model_destroy(&model));
  must(keel_array_destroy(&neighbourhoods));
  must(keel_array_destroy(&rates));
  must(keel_array_destroy(&answers));
  must(keel_context_destroy(&context));  // before MPI_Finalize
  must(keel_settings_destroy(&settings));
  free(answer);
  free_ring(&ring);
  return sqrt(all[0] / all[1]) < 0.2;
}

// The same equation without anybody who learns.
static int work(MPI_Comm comm) {
  Ring ring;
  make_ring(&ring, comm);
  double largest = 0;
  for (int step = 0; step < 4 * STEPS; ++step) {
    find_rates(&ring);
    advance(&ring);
    for (int i = 0; i < ring.cells; ++i) largest = fmax(largest, fabs(ring.field[FRAME_BEFORE + i]));
  }
  free_ring(&ring);
  return largest < 3;
}

int main(int argc, char** argv) {
  int level = 0, rank = 0, size = 1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int learns = rank < (size + 1) / 2;
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, learns ? 0 : 1, rank, &half);
  int mine = learns ? learn(half) : work(half), all = 0;
  MPI_Comm_free(&half);
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Finalize();
  return all == 1 ? 0 : 1;
}
