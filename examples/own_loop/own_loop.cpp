// The throws of examples/own_task by a loop of one's own, to the same bits as `keel train throws.yaml`.
//
//   own_loop throws.csv runs/own           one process
//   own_loop throws.csv runs/own 4 3       four ranks, which are threads, and ZeRO's stage 3
//
// Killed at any point and started again it goes on, with any number of ranks in any stage; with as many, to the same
// bits.

#include <cstdio>
#include <cstdlib>

#include "keel/autograd/functions.h"
#include "keel/data/collator.h"
#include "keel/data/csv.h"
#include "keel/data/split.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/nn/layer_text.h"
#include "keel/optim/catalog.h"
#include "keel/tasks/metrics/catalog.h"
#include "keel/tasks/task.h"
#include "keel/trainer/own_loop.h"

using namespace keel;

static constexpr std::int64_t kSteps = 600, kRows = 40, kMicro = 10;

static void learn(const std::string& throws, const std::string& folder, int stage, Communicator& ranks) {
  const Context context = Context::create({.threads = 1});
  const DatasetPtr table =
      open_csv(throws, {.fields = {{"ball", "speed,angle,drag"}, {"distance", "distance"}, {"height", "height"}}});
  const std::vector<DatasetPtr> parts = split(table, {0.8, 0.2}, 1);
  const auto training = make_source(context.host(), parts[0], shuffled(parts[0]->size(), {.rows = kRows, .seed = 1}),
                                    stack(), {.seed = 1});
  const auto held_out = make_source(context.host(), parts[1], sequential(parts[1]->size(), 2 * kMicro), stack());

  TextModel net("dense 32 tanh; dense 32 tanh; output distance 1; output height 1", 3);
  const auto outputs_of = [&](const Batch& batch, Forward& pass) {
    const Tensor ball = input(batch, "ball", pass).value();
    std::vector<Variable> outputs = net(std::span(&ball, 1), pass);
    for (Variable& each : outputs) each = view(each, {-1});
    return outputs;
  };
  const auto loss_of = [&](const std::vector<Variable>& outputs, const Batch& batch) {
    Loss loss;
    loss.add("distance", mse_loss(outputs[0], Variable(batch["distance"])), "rows");
    loss.add("height", mse_loss(outputs[1], Variable(batch["height"])), "rows", 4);
    return loss.add_regularizer("height_square", mean(square(outputs[1])), 1e-3);
  };
  Sharded engine(net, context, ranks, make_optimizer(find_optimizer("AdamW")),
                 {.micro_batches = micro_batches_of(kRows, kMicro, ranks), .clip = 1, .sharding = {.stage = stage}});
  const StepCurves curves = make_curves(default_schedule("cosine"), 1e-2, kSteps, context);
  OwnRun run(folder, engine, ranks, {.settings = {{"lr", "1e-2"}, {"schedule", "cosine"}}, .trackers = "csv"});
  StepBatches batches(training, engine, ranks, {.micro = kMicro, .first_step = run.step()});

  const MetricList of_distance({"r2"}, MetricInput::numbers, 1, "distance_"),
      of_height({"r2"}, MetricInput::numbers, 1, "height_");
  const auto evaluate_now = [&] {
    Metrics metrics;
    metrics.make<MeanMetric>("loss");
    of_distance.make(metrics);
    of_height.make(metrics);
    const auto validate = [&](const Batch& batch, Forward& pass, Metrics& fed) {
      const std::vector<Variable> outputs = outputs_of(batch, pass);
      feed(fed, loss_of(outputs, batch), batch);
      of_distance.feed(fed, {.outputs = outputs[0].value(), .targets = batch["distance"]});
      of_height.feed(fed, {.outputs = outputs[1].value(), .targets = batch["height"]});
    };
    evaluate(*held_out, held_out->steps(), context, DType::f32, validate, metrics, ranks);
    return named_values(metrics, "");
  };

  while (run.step() < kSteps) {
    for (MicroBatch& micro : batches.next()) micro.backward(loss_of(outputs_of(micro.batch, micro.pass), micro.batch));
    const StepResult result = engine.step(curves).get();  // over all rows of all ranks
    run.count_step();
    if (run.step() % 10 == 0)
      run.log({{"loss", batches.mean_loss()}, {"lr", result.lr}, {"grad_norm", result.grad_norm}});
    if (run.step() % 200 == 0) run.log(evaluate_now());
    if (run.step() % 50 == 0) run.save();  // written while the loop goes on
  }
  run.end();
}

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: own_loop THROWS.csv FOLDER [RANKS [STAGE]]\n");
    return 2;
  }
  const int ranks = argc > 3 ? std::atoi(argv[3]) : 1, stage = argc > 4 ? std::atoi(argv[4]) : 0;
  try {
    run_ranks(ranks, [&](Communicator& each) { learn(argv[1], argv[2], stage, each); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "own_loop: %s\n", error.what());
    return 2;
  }
}
