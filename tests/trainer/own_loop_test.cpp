// Training loops of one's own: the bits of `keel train`, also after a stop, and what they are refused.

#include "keel/trainer/own_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "keel/autograd/functions.h"
#include "keel/data/collator.h"
#include "keel/data/divide_rows.h"
#include "keel/dist/comm/agreement.h"
#include "keel/kernels/elementwise.h"
#include "keel/nn/layers.h"
#include "keel/runtime/random.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/metrics.h"
#include "tests/error_of.h"
#include "tests/support.h"
#include "tests/trainer/centring_layer.h"
#include "tests/trainer/run_support.h"
#include "tests/trainer/small_task.h"

namespace keel {
namespace {

using namespace testing;

// Places on a slope, and its height there. One that is unreadable may be in the way.
class Slope : public Dataset {
 public:
  explicit Slope(std::int64_t size, std::int64_t unreadable = -1) : size_(size), unreadable_(unreadable) {}
  std::int64_t size() const override { return size_; }
  Example example(std::int64_t i) const override {
    check_index(i);
    if (i == unreadable_) throw Error("slope.csv:7: a wet page", ErrorKind::io);
    std::vector<float> place(2);
    fill_uniform(place, 3, "place", static_cast<std::uint64_t>(2 * i));
    Example example;
    example.set("place", Numbers{{1, 2}, place});
    example.set("height", Numbers{{1, 1}, {place[0] - 2 * place[1]}});
    return example;
  }
  std::string fingerprint() const override { return concat("slope ", size_); }

 private:
  std::int64_t size_, unreadable_;
};

// A weight beside the rows: how many places lie high.
Collator with_summits() {
  return [each = stack()](std::span<const CollatedRow> rows, const CollateInfo& info, Batch& batch) {
    each(rows, info, batch);
    const std::vector<double> heights = doubles(batch["height"]);
    batch.set_weight("summits",
                     static_cast<double>(std::ranges::count_if(heights, [](double height) { return height > 0; })));
  };
}

// A step has five rows, and an epoch's last one two: four ranks do not all have some.
constexpr std::int64_t kPlaces = 22, kRows = 5, kMicro = 1, kOwnSteps = 11;

std::shared_ptr<const BatchSource> source_of(const DatasetPtr& places, const Context& host) {
  return make_source(host, places, shuffled(places->size(), {.rows = kRows, .seed = 1}), with_summits(), {.seed = 1});
}

struct SlopeModel {
  Sequential net{Centring(2), Linear(2, 16), Activation(ActivationKind::tanh), Dropout(0.2), Linear(16, 1)};
  Loss loss(const Batch& batch, Forward& pass) const {
    const Variable wanted = input(batch, "height", pass),
                   error = square(sub(net(input(batch, "place", pass), pass), wanted));
    Loss loss;
    loss.add("everywhere", mean(error), "rows");
    loss.add_sum("summits", sum(mul(error, relu(wanted))), "summits", 0.5);
    return loss;
  }
};

class SlopeTask : public Task {
 public:
  explicit SlopeTask(const TaskSite& site) : site_(site) {}
  Module& model() override { return model_.net; }
  Data data() override { return {.training = source_of(std::make_shared<Slope>(kPlaces), site_.host)}; }
  Loss training_step(const Batch& batch, Forward& pass) override { return model_.loss(batch, pass); }

 private:
  TaskSite site_;
  SlopeModel model_;
};

// The same by `keel train`.
Config slope_run(const std::string& folder) {
  static const auto keys = keys_of_task<SlopeTask>("slope");
  return parse_config(keys,
                      "steps: 11\nbatch: {global: 5, micro: 1}\noptimizer: {lr: 1e-2}\nlog: {every: 1}\nthreads: 1\n",
                      "slope.yaml", std::vector<std::string>{"run=" + folder});
}

struct LoopOptions {
  int stage = 0;
  int virtual_ranks = 0;
  std::int64_t last = kOwnSteps;  // then it is left, as by a failure
  DatasetPtr places = std::make_shared<Slope>(kPlaces);
  OwnRunOptions run = {};
  std::function<void(std::int64_t)> after_step = {};  // on the first rank
};

void own_loop(const std::string& folder, Communicator& ranks, const LoopOptions& options = {}) {
  const Context context = Context::create({.threads = 1});
  SlopeModel model;
  Sharded engine(model.net, context, ranks, make_optimizer(find_optimizer("AdamW")),
                 {.micro_batches = micro_batches_of(kRows, kMicro, ranks, options.virtual_ranks),
                  .clip = 1,
                  .sharding = {.stage = options.stage, .virtual_ranks = options.virtual_ranks}});
  const StepCurves curves = make_curves(default_schedule("cosine"), 1e-2, kOwnSteps, context);
  OwnRun run(folder, engine, ranks, options.run);
  EXPECT_EQ(run.step() == 0 ? 0 : run.state().at("twice").integer(), 2 * run.step());
  StepBatches batches(source_of(options.places, context.host()), engine, ranks,
                      {.micro = kMicro, .first_step = run.step()});
  while (run.step() < options.last) {
    for (MicroBatch& micro : batches.next()) micro.backward(model.loss(micro.batch, micro.pass));
    engine.step(curves);
    run.count_step();
    run.log({{"loss", batches.mean_loss()}});
    if (options.after_step && ranks.rank() == 0) options.after_step(run.step());
    if (run.step() % 3 == 0) run.save({{"twice", 2 * run.step()}});
  }
  if (options.last == kOwnSteps) run.end({{"twice", 2 * kOwnSteps}});
}

void own_loop_by(int n, const std::string& folder, const LoopOptions& options = {}) {
  run_ranks(n, [&](Communicator& ranks) { own_loop(folder, ranks, options); });
}

std::uint64_t weights_in(const std::string& folder) {
  const std::string path = RunFolder(folder).checkpoint(kOwnSteps);
  const Checkpoint checkpoint = open_checkpoint(path);
  return fingerprint(ExtentReader(path, checkpoint.manifest).read("weights", Context::create()));
}

std::vector<double> losses_in(const std::string& folder) {
  std::vector<double> losses;
  for (const Json& record : read_metrics(RunFolder(folder).metrics()))
    if (record.contains("loss")) losses.push_back(record.at("loss").number());
  return losses;
}

TEST(OwnLoop, OfVirtualRanksGivesTheBitsOfKeelTrainAtEveryNumberOfRanks) {
  const TemporaryFolder place;
  Config config = slope_run(place / "trained");
  config.sharding.virtual_ranks = 4;
  train_by(2, config);
  for (const int n : {1, 2, 4}) {
    const std::string folder = place / concat("by", n);
    own_loop_by(n, folder, {.stage = n - 1, .virtual_ranks = 4});
    EXPECT_EQ(losses_in(folder), losses_in(config.run)) << n;
    EXPECT_EQ(weights_in(folder), weights_in(config.run)) << n;
  }
}

TEST(OwnLoop, GivesTheBitsOfKeelTrainInEveryStageAtEveryNumberOfRanks) {
  for (const int n : {1, 2, 3, 4}) {
    const TemporaryFolder place;
    train_by(n, slope_run(place / "trained"));
    for (const int stage : {0, 1, 2, 3}) {
      const std::string folder = place / concat("own-", stage);
      own_loop_by(n, folder, {.stage = stage});
      EXPECT_EQ(weights_in(folder), weights_in(place / "trained")) << n << " ranks, stage " << stage;
      EXPECT_EQ(losses_in(folder), losses_in(place / "trained")) << n << " ranks, stage " << stage;
    }
  }
}

TEST(OwnLoop, GoesOnToTheSameBitsWhereverItIsLeft) {
  const TemporaryFolder place;
  own_loop_by(3, place / "whole");
  for (const std::int64_t left : {1, 3, 4, 7, 10}) {
    const std::string folder = place / concat("left-", left);
    own_loop_by(3, folder, {.stage = 3, .last = left});
    own_loop_by(3, folder, {.stage = 1});
    EXPECT_EQ(weights_in(folder), weights_in(place / "whole")) << left;
    EXPECT_EQ(losses_in(folder), losses_in(place / "whole")) << left;
    EXPECT_EQ(RunFolder(folder).checkpoint_steps().size(), 2U) << "the newest two stay";
    EXPECT_TRUE(std::filesystem::exists(RunFolder(folder).model()));
    own_loop_by(2, folder);  // nothing is left to do
    EXPECT_EQ(losses_in(folder).size(), static_cast<std::size_t>(kOwnSteps));
  }
}

TEST(OwnLoop, IsEndedByASaveThatFailsWhereNobodyWouldHearOfIt) {
  for (const int n : {1, 3})
    for (const bool hears : {false, true}) {
      const TemporaryFolder place;
      const std::string run = place / "run", checkpoints = place / "run/checkpoints";
      std::string told;
      LoopOptions options;
      if (hears) options.run.tell = [&](LogLevel, std::string_view text) { told += text; };
      options.after_step = [&](std::int64_t step) {
        if (step != 2) return;
        std::filesystem::remove_all(checkpoints);
        write_text_file(checkpoints, "no folder");
      };
      const std::string error = error_of([&] { own_loop_by(n, run, options); });
      const std::int64_t steps = std::ssize(losses_in(run));
      if (hears) {
        EXPECT_NE(told.find("no checkpoint of step 3: "), std::string::npos) << told;
        EXPECT_EQ(steps, kOwnSteps);
      } else {
        EXPECT_TRUE(error.starts_with("no checkpoint of step 3: ")) << error;
        EXPECT_LT(steps, kOwnSteps);
      }
      EXPECT_NE(error.find(checkpoints), std::string::npos) << error;  // end() cannot do without one
    }
}

TEST(OwnLoop, PassesOverACheckpointThatIsDamaged) {
  const TemporaryFolder place;
  own_loop_by(2, place / "whole");
  own_loop_by(2, place / "run", {.last = 9});  // the checkpoint of step 6 is there, and perhaps that of step 9
  const RunFolder folder(place / "run");
  const std::vector<std::int64_t> steps = folder.checkpoint_steps();
  ASSERT_EQ(steps.size(), 2U);
  for (const auto& entry : std::filesystem::directory_iterator(folder.checkpoint(steps.back())))
    if (entry.path().filename().string().starts_with("model")) {
      std::string bytes = read_text_file(entry.path().string());
      bytes.back() = static_cast<char>(bytes.back() ^ 1);
      write_text_file(entry.path().string(), bytes);
    }
  std::string told;
  const OwnRunOptions telling = {.tell = [&](LogLevel, std::string_view text) { told += text; }};
  own_loop_by(2, place / "run", {.run = telling});
  EXPECT_NE(told.find("is not usable"), std::string::npos) << told;
  EXPECT_EQ(weights_in(place / "run"), weights_in(place / "whole"));
}

TEST(OwnLoop, FeedsTrackersWithWhatItRecords) {
  const TemporaryFolder place;
  own_loop_by(2, place / "run",
              {.run = {.settings = {{"lr", "1e-2"}}, .trackers = concat("{type: jsonl, path: ", place / "told", "}")}});
  const std::string told = read_text_file(place / "told");
  EXPECT_NE(told.find(R"("settings":{"lr":0.01})"), std::string::npos) << told;
  EXPECT_NE(told.find(R"("status":"finished")"), std::string::npos) << told;
  EXPECT_EQ(std::ranges::count(told, '\n'), 1 + 1 + kOwnSteps + 4 + 1 + 1)
      << told;  // start, config, checkpoints, model, end
}

TEST(OwnLoop, EndsEverywhereWhereARankCannotReadItsData) {
  const TemporaryFolder place;
  const DatasetPtr torn = std::make_shared<Slope>(kPlaces, 9);
  const std::string told = error_of([&] { own_loop_by(3, place / "run", {.stage = 3, .places = torn}); });
  EXPECT_NE(told.find("slope.csv:7: a wet page"), std::string::npos) << told;
}

TEST(OwnLoop, RefusesWhatDoesNotBelongTogether) {
  const TemporaryFolder place;
  const auto refused = [&](int n, const std::function<void(Communicator&)>& f) {
    return error_of([&] { run_ranks(n, f); });
  };
  train_by(1, slope_run(place / "trained"));
  EXPECT_EQ(refused(2, [&](Communicator& ranks) { own_loop(place / "trained", ranks); }),
            concat("'", place / "trained", "' holds a run of `keel train`; give the loop another folder"));
  own_loop_by(1, place / "own");
  TrainObserver silent;
  Config later = slope_run(place / "later");
  later.resume = place / "own";
  EXPECT_NE(error_of([&] { train(later, silent); }).find("is of a training loop of one's own"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(place / "later"));

  const Context context = Context::create({.threads = 1});
  EXPECT_NE(refused(2,
                    [&](Communicator& ranks) {
                      Linear other(2, 1);
                      Sharded engine(other, context, ranks, make_adamw());
                      OwnRun run(place / "own", engine, ranks);
                    })
                .find("another model"),
            std::string::npos);
  EXPECT_NE(refused(1,
                    [&](Communicator& ranks) {
                      Linear one(2, 1), two(2, 1);
                      Sharded first(one, context, make_adamw()), second(two, context, make_adamw());
                      const OwnRun run(place / "shared", first, ranks), again(place / "shared", second, ranks);
                    })
                .find("is in use by another run"),
            std::string::npos);
  EXPECT_NE(refused(1,
                    [&](Communicator& ranks) {
                      Linear one(2, 1);
                      Sharded engine(one, context, make_adamw());
                      const OwnRun run(place / "tracked", engine, ranks, {.trackers = "tensorbord"});
                    })
                .find("tensorboard"),
            std::string::npos);
  EXPECT_NE(refused(1,
                    [&](Communicator& ranks) {
                      Linear one(2, 1);
                      Sharded engine(one, context, make_adamw());
                      const OwnRun run(place / "tracked", engine, ranks, {.trackers = "{type: csv, every: 5}"});
                    })
                .find("csv: every thins the records of `keel train`"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(place / "tracked"));
}

// A loop over two ranks, whose losses and data `rank` decides.
std::string refused_step(const std::function<Loss(int rank, const Variable& height, const Batch& batch)>& loss,
                         std::int64_t micro_batches = 3, bool differs = false) {
  return error_of([&] {
    run_ranks(2, [&](Communicator& ranks) {
      const Context context = Context::create({.threads = 1});
      Linear net(2, 1);
      Sharded engine(net, context, ranks, make_adamw(), {.micro_batches = micro_batches});
      const auto places = std::make_shared<Slope>(differs && ranks.rank() == 1 ? 7 : kPlaces);
      StepBatches batches(source_of(places, context.host()), engine, ranks, {.micro = kMicro});
      for (MicroBatch& micro : batches.next())
        micro.backward(loss(ranks.rank(), net(input(micro.batch, "place", micro.pass), micro.pass), micro.batch));
    });
  });
}

TEST(OwnLoop, RefusesStepsThatRanksDoNotShare) {
  const auto mse = [](int, const Variable& height, const Batch& batch) -> Loss {
    return mse_loss(height, Variable(batch["height"]));
  };
  EXPECT_EQ(refused_step(mse), "");
  EXPECT_NE(refused_step(mse, 3, true).find("ranks have different data: rank 0 has slope 22, rank 1 has slope 7"),
            std::string::npos);
  EXPECT_NE(refused_step(mse, 1).find("step 1 has 5 rows, in 3 micro-batches on each rank, but the engine was made for "
                                      "1; micro_batches_of() says how many to make it for"),
            std::string::npos);
  const std::string told = refused_step([](int rank, const Variable& height, const Batch& batch) {
    Loss loss;
    loss.add(rank == 0 ? "near" : "far", mse_loss(height, Variable(batch["height"])), "rows");
    return loss;
  });
  EXPECT_NE(told.find("step 1: ranks have different losses"), std::string::npos) << told;
}

TEST(GatherForMetrics, GivesEachRowOnceInTheOrderOfTheBatch) {
  const Context host = Context::create();
  for (const int n : {1, 2, 3, 4})
    for (const std::int64_t rows : {1, 3, 7})
      run_ranks(n, [&](Communicator& ranks) {
        const std::vector<Rows> mine = divide_rows(rows, rows, ranks.rank(), ranks.size());
        const bool has_rows = mine[0].begin < mine[0].end;
        const Rows range = has_rows ? mine[0] : Rows{0, 1};
        const std::int64_t count = range.end - range.begin;
        Batch batch(host, range.begin, count);
        if (!has_rows) batch = batch.stand_in();
        std::vector<std::int64_t> values;
        for (std::int64_t i = range.begin; i < range.end; ++i) values.insert(values.end(), {10 * i, 10 * i + 1});
        // A view that is not dense.
        const Tensor dense = from_values(host, values, {count, 2});
        const Tensor view = kernels::contiguous(dense.transpose(0, 1)).transpose(0, 1);
        const Tensor all = gather_for_metrics(view, batch, ranks);
        ASSERT_EQ(all.shape(), (Dims{rows, 2}));
        std::vector<std::int64_t> wanted;
        for (std::int64_t i = 0; i < rows; ++i) wanted.insert(wanted.end(), {10 * i, 10 * i + 1});
        EXPECT_EQ(all.to_vector<std::int64_t>(), wanted) << n;
      });
  const std::string told = error_of([&] {
    run_ranks(2, [&](Communicator& ranks) {
      const Batch batch(host, 0, 2);
      gather_for_metrics(zeros(host, {2}, ranks.rank() == 0 ? DType::f32 : DType::i64), batch, ranks);
    });
  });
  EXPECT_EQ(told, "ranks gather different values: rank 0 has rows of f32 (1), rank 1 has rows of i64 (1)");
  run_ranks(1, [&](Communicator& ranks) {
    const Batch batch(host, 0, 2);
    EXPECT_EQ(gather_for_metrics(zeros(host, {2, 0}), batch, ranks).shape(), (Dims{0, 0})) << "rows without bytes";
    EXPECT_EQ(error_of([&] { gather_for_metrics(zeros(host, {}), batch, ranks); }),
              "values of shape () for a batch of 2 rows; the first extent counts rows");
  });
}

TEST(OwnLoop, RefusesBatchesWithoutRowsAndAStepBeforeTheFirst) {
  const auto refusal = [](std::int64_t micro, std::int64_t first_step) {
    return error_of([&] {
      run_ranks(1, [&](Communicator& ranks) {
        const Context context = Context::create({.threads = 1});
        Linear net(2, 1);
        Sharded engine(net, context, ranks, make_adamw());
        const StepBatches batches(source_of(std::make_shared<Slope>(kPlaces), context.host()), engine, ranks,
                                  {.micro = micro, .first_step = first_step});
      });
    });
  };
  EXPECT_EQ(refusal(1, 0), "");
  EXPECT_EQ(refusal(0, 3), "batches of 0 rows after 3 steps; rows are at least 1, steps at least 0");
  EXPECT_EQ(refusal(5, -1), "batches of 5 rows after -1 steps; rows are at least 1, steps at least 0");
}

}  // namespace
}  // namespace keel
