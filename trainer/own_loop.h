#pragma once
// What a training loop of one's own needs beside engine and data: a rank's micro-batches of each step, the loss over
// all ranks, curves of the learning rate. The folder of such a run, with records, trackers and checkpoints, is
// keel/trainer/own_run.h; evaluation is keel/trainer/evaluation.h.
//
//   Sharded engine(model, context, ranks, make_adamw(), {.micro_batches = micro_batches_of(64, 16, ranks)});
//   OwnRun run("runs/mine", engine, ranks);
//   StepBatches batches(source, engine, ranks, {.micro = 16, .first_step = run.step()});
//   while (run.step() < steps) {
//     for (MicroBatch& micro : batches.next())
//       micro.backward(mse_loss(model(input(micro.batch, "x", micro.pass), micro.pass), micro.batch["y"]));
//     engine.step(3e-4);
//     run.count_step();
//   }
//
// examples/own_loop is a whole program. Such a loop gives the bits that `keel train` gives of the same model, data and
// settings.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "keel/data/batch.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/nn/module.h"
#include "keel/optim/schedule_table.h"
#include "keel/tasks/loss.h"
#include "keel/trainer/evaluation.h"
#include "keel/trainer/own_run.h"

namespace keel {

// Micro-batches that each rank has in a step of so many rows of all ranks, `micro` of them at a time.
// `virtual_ranks`: those that ShardingOptions shares out; 0: each rank is its own.
std::int64_t micro_batches_of(std::int64_t rows, std::int64_t micro, const Communicator& ranks, int virtual_ranks = 0);

// The rates of a schedule over `steps` taken steps, from a base rate, for Sharded::step(). An Error where the settings
// make no sense.
StepCurves make_curves(const ScheduleSettings& schedule, double rate, std::int64_t steps, const Context& context);

struct StepBatchesOptions {
  std::int64_t micro = 1;       // rows that are computed at a time, at most
  std::uint64_t seed = 1;       // of random draws in forward passes
  std::int64_t first_step = 0;  // goes on after so many steps
  int workers = 1;              // threads that load
};

class MicroBatch {
 public:
  Batch batch;   // on the engine's device; a stand-in where this rank has no rows for it
  Forward pass;  // that trains; its draws depend on seed, step and sample

  // Adds the gradients of the loss to those of the step, by the weights of its terms (keel/tasks/loss.h). Ranks, and
  // the micro-batches of a step, have the same terms: else an Error that lists both. Collective.
  void backward(const Loss& loss) const;

 private:
  friend class StepBatches;
  struct Step;
  MicroBatch(Batch batch, Forward pass, bool last, Step& step);
  bool last_;  // of the step, or of a virtual rank
  Step* step_;
};

// The micro-batches of one rank, loaded ahead by threads.
class StepBatches {
 public:
  // Every rank makes one. All are outlived by what is given. Ranks whose data differ are an AgreedError.
  StepBatches(std::shared_ptr<const BatchSource> source, Sharded& engine, Communicator& ranks,
              const StepBatchesOptions& options);
  ~StepBatches();
  StepBatches(const StepBatches&) = delete;
  StepBatches& operator=(const StepBatches&) = delete;

  // Those of the next step, as many on every rank, until the next call; none after the source's last step. What fails
  // on any rank (a file that was cut) is an AgreedError, and so are more than the engine was made for. Collective.
  std::span<MicroBatch> next();
  // The loss of the step's micro-batches over all ranks, as `keel train` records it; not a number where no term had
  // weight. Waits for the device. Collective.
  double mean_loss() const;

 private:
  std::unique_ptr<MicroBatch::Step> step_;
};

// The rows of all ranks in the order of a global batch of which rank r has the r-th part, as divide_rows() gives it: x
// (rows, ...) of any dtype, on the processor of every rank. Rows of a stand-in are left out, so that none comes twice.
// Ranks may have different numbers of rows, and equal dtypes and extents otherwise: else an AgreedError. Collective.
Tensor gather_for_metrics(const Tensor& x, const Batch& batch, Communicator& ranks);

}  // namespace keel
