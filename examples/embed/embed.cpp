// A code with MPI that trains a model while it runs. Half of its processes solve an equation, and learn from each step
// to foretell the next one; the others have work of their own. keel gets the one communicator, and nothing of the rest.

#include <mpi.h>

#include <cmath>
#include <cstdio>
#include <exception>

#include "heat.h"
#include "keel/autograd/loss.h"
#include "keel/dist/comm/mpi_transport.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/update.h"
#include "keel/nn/layers.h"

namespace {

constexpr int kCells = 48, kSteps = 400;

// The solver's own memory as a tensor of (rows, columns): without a copy, with the frame's width left out.
keel::Tensor view_of(const keel::Context& context, double* first, const Heat& heat) {
  return keel::from_external(context, first, {heat.rows(), heat.columns()}, {heat.pitch(), 1}, keel::DType::f64);
}

// What a cell and its four neighbours were: (cells, 5).
keel::Tensor neighbourhoods(const keel::Context& context, Heat& heat) {
  const keel::Tensor all = keel::empty(context, {heat.rows(), heat.columns(), 5});
  const int offsets[5][2] = {{0, 0}, {-1, 0}, {1, 0}, {0, -1}, {0, 1}};
  for (int k = 0; k < 5; ++k)
    keel::kernels::copy_into(all.select(2, k), view_of(context, heat.before(offsets[k][0], offsets[k][1]), heat));
  return all.view({-1, 5});
}

// By how much each cell has changed, in hundredths: (cells, 1).
keel::Tensor changes(const keel::Context& context, Heat& heat) {
  const keel::Tensor now = view_of(context, heat.at(0, 0), heat), before = view_of(context, heat.before(0, 0), heat);
  const keel::Tensor change = keel::kernels::cast(keel::kernels::binary<keel::Sub>(now, before), keel::DType::f32);
  keel::kernels::scale(change, 100);
  return change.view({-1, 1});
}

// Whether what was learned foretells the steps.
bool learn(MPI_Comm comm) {
  const keel::Context context = keel::Context::create({.threads = 1});
  const auto ranks = keel::make_mpi_communicator(comm);
  keel::Mlp net({5, 32, 32, 1}, keel::ActivationKind::tanh);
  keel::ShardedOptions options;
  options.sharding.stage = 2;  // gradients and optimizer state are spread over the processes
  keel::Sharded engine(net, context, *ranks, keel::make_adamw({.weight_decay = 0}), options);

  Heat heat(comm, kCells);
  double first = 0, last = 0;
  for (int step = 1; step <= kSteps; ++step) {
    heat.step();
    const keel::Variable wanted(changes(context, heat));
    const keel::Variable loss = keel::mse_loss(net(keel::Variable(neighbourhoods(context, heat))), wanted);
    engine.backward(loss, {.weight = wanted.value().numel()});
    engine.step(3e-3 * (1 - static_cast<double>(step - 1) / kSteps));

    const double cells = static_cast<double>(wanted.value().numel());
    const double mine[2] = {loss.value().item() * cells, keel::kernels::sum_of_squares(wanted.value())};
    double of_all[2] = {};
    MPI_Allreduce(mine, of_all, 2, MPI_DOUBLE, MPI_SUM, comm);  // the code's own call, between keel's
    last = std::sqrt(of_all[0] / of_all[1]);
    if (step == 1) first = last;
    if (ranks->rank() == 0 && (step == 1 || step % 100 == 0))
      std::printf("step %3d  error %.4f of the change\n", step, last);
  }
  return last < 0.1 && first > 0.5;
}

// The same equation without anybody who learns.
bool work(MPI_Comm comm) {
  Heat heat(comm, kCells);
  const double before = heat.total();
  for (int step = 0; step < 10 * kSteps; ++step) heat.step();
  return std::abs(heat.total() - before) < 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0, rank = 0, size = 1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const bool learns = rank < (size + 1) / 2;
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, learns ? 0 : 1, rank, &half);

  bool is_well = false;
  try {
    is_well = learns ? learn(half) : work(half);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "embed: process %d: %s\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Comm_free(&half);
  int mine = is_well ? 1 : 0, all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Finalize();
  return all == 1 ? 0 : 1;
}
