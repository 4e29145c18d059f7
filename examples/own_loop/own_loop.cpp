// The spirals of examples/own_task by a loop of one's own, to the same bits as `spirals train spirals.yaml`.
//
//   own_loop spirals.csv runs/own           one process
//   own_loop spirals.csv runs/own 4 3       four ranks, which are threads, and ZeRO's stage 3
//
// Killed at any point and started again it goes on, with any number of ranks in any stage; with as many, to the same
// bits.

#include <cstdio>
#include <cstdlib>

#include "keel/data/collator.h"
#include "keel/data/csv.h"
#include "keel/data/split.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/kernels/reduce.h"
#include "keel/nn/layers.h"
#include "keel/optim/catalog.h"
#include "keel/tasks/task.h"
#include "keel/trainer/own_loop.h"

using namespace keel;

static constexpr std::int64_t kSteps = 600, kRows = 60, kMicro = 15;

static void learn(const std::string& points, const std::string& folder, int stage, Communicator& ranks) {
  const Context context = Context::create({.threads = 1});
  const std::vector<DatasetPtr> parts =
      split(open_csv(points, {.fields = {{"point", "x,y"}, {"arm", "#arm"}}}), {0.8, 0.2}, 1);
  const auto training = make_source(context.host(), parts[0], shuffled(parts[0]->size(), {.rows = kRows, .seed = 1}),
                                    stack(), {.seed = 1});
  const auto held_out = make_source(context.host(), parts[1], sequential(parts[1]->size(), 2 * kMicro), stack());

  Mlp net({2, 32, 32, 3}, ActivationKind::tanh);
  const auto scores_of = [&](const Batch& batch, Forward& pass) { return net(input(batch, "point", pass), pass); };
  Sharded engine(net, context, ranks, make_optimizer(find_optimizer("AdamW")),
                 {.micro_batches = micro_batches_of(kRows, kMicro, ranks), .clip = 1, .sharding = {.stage = stage}});
  const StepCurves curves = make_curves(default_schedule("cosine"), 1e-2, kSteps, context);
  OwnRun run(folder, engine, ranks, {.settings = {{"lr", "1e-2"}, {"schedule", "cosine"}}, .trackers = "csv"});
  StepBatches batches(training, engine, ranks, {.micro = kMicro, .first_step = run.step()});

  const auto evaluate_now = [&] {
    Metrics metrics;
    metrics.make<MeanMetric>("loss");
    metrics.make<Accuracy>("accuracy");
    const auto validate = [&](const Batch& batch, Forward& pass, Metrics& fed) {
      const Variable scores = scores_of(batch, pass);
      feed(fed, cross_entropy(scores, batch["arm"]), batch);
      fed.at<Accuracy>("accuracy").update(kernels::argmax(scores.value(), -1), batch["arm"]);
    };
    evaluate(*held_out, held_out->steps(), context, DType::f32, validate, metrics, ranks);
    return named_values(metrics, "");
  };

  while (run.step() < kSteps) {
    for (MicroBatch& micro : batches.next())
      micro.backward(cross_entropy(scores_of(micro.batch, micro.pass), micro.batch["arm"]));
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
    std::fprintf(stderr, "usage: own_loop POINTS.csv FOLDER [RANKS [STAGE]]\n");
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
