// Runs on a part of their batches, and trials of which nothing stays.

#include <gtest/gtest.h>

#include <filesystem>

#include "keel/autograd/functions.h"
#include "keel/kernels/elementwise.h"
#include "keel/nn/layers.h"
#include "keel/tasks/metrics/numbers.h"
#include "keel/trainer/batch_limit.h"
#include "keel/trainer/metrics.h"
#include "keel/trainer/trial_run.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"
#include "tests/trainer/small_task.h"

namespace keel {
namespace {

using namespace testing;
namespace fs = std::filesystem;

DatasetPtr fortieths(std::int64_t size) {
  return made_dataset(size, "fortieths", [](std::int64_t i) {
    return Example().set("x", Numbers{{1}, {static_cast<float>(i) / 40}});
  });
}

// Learns 1 - x from 24 rows; counts how many rows of each of its two sets are evaluated.
class Mirror : public Task {
 public:
  explicit Mirror(const TaskSite& site) : site_(site) {}
  Module& model() override { return net_; }
  Data data() override {
    Data data = make_data(site_, fortieths(24), 0, stack());
    for (const auto& [name, size] : {std::pair("dev", 20), std::pair("test", 33)})
      data.validation.push_back({name, make_source(site_.host, fortieths(size), sequential(size, 2), stack())});
    return data;
  }
  Loss training_step(const Batch& batch, Forward& pass) override {
    const Variable x = input(batch, "x", pass);
    return mse_loss(net_(x, pass), sub(Variable(kernels::full(x.value().context(), x.shape(), 1)), x));
  }
  void make_metrics(std::string_view, Metrics& metrics) override { metrics.make<Total>("rows_seen"); }
  void validation_step(const Batch& batch, Forward& pass, Metrics& metrics) override {
    metrics.at<Total>("rows_seen").update(static_cast<double>(batch.rows()));
    Task::validation_step(batch, pass, metrics);
  }

 private:
  TaskSite site_;
  Mlp net_{{1, 8, 1}, ActivationKind::tanh};
};

Config mirror_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  static const auto keys = keys_of_task<Mirror>("mirror");
  return task_run(keys, R"(
steps: 6
batch: {global: 6, micro: 2}
optimizer: {lr: 1e-2}
scheduler: {type: linear, warmup: 4}
eval: {every: 4}
checkpoint: {every: 0}
log: {every: 1}
threads: 1
)",
                  place, run, std::move(more));
}

double last_logged(const Config& config, std::string_view name) {
  double value = -1;
  for (const Json& record : read_metrics(RunFolder(config.run).metrics()))
    if (const Json* const found = record.find(name)) value = found->number();
  return value;
}

TEST(BatchLimits, AreReadAndWrittenTheSameWay) {
  const auto round = [](std::vector<std::string> texts) { return BatchLimits::parse(texts).texts(); };
  EXPECT_EQ(round({"10"}), (std::vector<std::string>{"10"}));
  EXPECT_EQ(round({"2.5%", "test=0", "dev=7"}), (std::vector<std::string>{"2.5%", "dev=7", "test=0"}));
  EXPECT_EQ(round({"dev=50%"}), (std::vector<std::string>{"0", "dev=50%"}));
  for (const char* wrong : {"", "-1", "1.5", "0%", "101%", "all", "dev=", "=3", "nan", "1e99"})
    EXPECT_NE(error_of([&] { BatchLimits::parse({wrong}); }), "") << wrong;
  EXPECT_NE(error_of([] { BatchLimits::parse({"dev=1", "dev=2"}); }).find("'dev=2' once more"), std::string::npos);
  EXPECT_NE(error_of([] { BatchLimits::parse({"1", "2"}); }).find("two limits for all sets"), std::string::npos);
  EXPECT_EQ(BatchLimit::parse("10%").of(41), 5) << "rounded up";
  EXPECT_EQ(BatchLimit::parse("10%").of(40), 4);
  EXPECT_EQ(BatchLimit(7).of(5), 5);
  EXPECT_EQ(BatchLimit(0).of(5), 5);
}

TEST(BatchLimits, HoldForEachValidationSetByAnyNumberOfRanks) {
  for (const int n : {1, 3}) {
    const TemporaryFolder place;
    const auto rows = [&](const char* run, std::vector<std::string> more) {
      const Config config = mirror_run(place, run, std::move(more));
      EXPECT_EQ(to_yaml(parse_config(config.keys, to_yaml(config), "again.yaml")), to_yaml(config));
      train_by(n, config);
      return std::pair(last_logged(config, "dev/rows_seen"), last_logged(config, "test/rows_seen"));
    };
    EXPECT_EQ(rows("all", {}), std::pair(20.0, 33.0));
    EXPECT_EQ(rows("both", {"eval.batches=3"}), std::pair(6.0, 6.0));
    EXPECT_EQ(rows("part", {"eval.batches=50%"}), std::pair(10.0, 18.0)) << "17 batches, of which 9";
    EXPECT_EQ(rows("one", {"eval.batches=[test=1]"}), std::pair(20.0, 2.0));
    EXPECT_EQ(rows("each", {"eval.batches=[10%, test=20%]"}), std::pair(2.0, 8.0));
    EXPECT_NE(error_of([&] {
                rows("none", {"eval.batches=[tests=1]"});
              }).find("eval.batches: there is no validation set 'tests'; there are dev, test"),
              std::string::npos);
    EXPECT_FALSE(fs::exists(place / "none"));
  }
}

TEST(BatchLimits, MakeEpochsShorterInEveryStage) {
  for (const int n : {1, 2, 3}) {
    const TemporaryFolder place;
    const auto config = [&](const std::string& run, std::vector<std::string> more) {
      more.insert(more.end(), {"steps=7", "checkpoint.keep=9"});
      return mirror_run(place, run, std::move(more));
    };
    expect_one_training_in_all_stages(n, [&](const std::string& run, std::vector<std::string> more) {
      more.emplace_back("data.batches=2");
      return config(run, std::move(more));
    });
    const Config part = config("part", {"data.batches=50%"});
    train_by(n, part);
    EXPECT_TRUE(weights_of(part) == weights_of(config("ddp", {}))) << "an epoch has four steps";
    EXPECT_EQ(last_logged(part, "epoch"), 3.5);
    train_by(n, config("whole", {"data.batches=100%"}));
    train_by(n, config("plain", {}));
    EXPECT_TRUE(weights_of(config("whole", {})) == weights_of(config("plain", {})));
    EXPECT_FALSE(weights_of(part) == weights_of(config("plain", {})));
  }
  const TemporaryFolder place;
  TrainObserver silent;
  EXPECT_NE(error_of([&] {
              train(small_run(place, "text", {"data.batches=5"}), silent);
            }).find("data.batches: this data has no epochs"),
            std::string::npos);
}

TEST(FastDevRun, DoesAllThatARunDoesAndLeavesNothing) {
  for (const int n : {1, 2, 3})
    for (const char* stage : {"ddp-fp32", "zero3-fp32"}) {
      const TemporaryFolder place;
      const auto config = [&](std::vector<std::string> more) {
        more.insert(more.begin(), {concat("strategy=", stage), "tracker=[csv]", "ema.decay=0.9"});
        return mirror_run(place, "run", std::move(more));
      };
      const auto told = train_by(n, config({"fast_dev_run=2", "resume=auto"}));
      EXPECT_EQ(told[0]->losses.size(), 2u) << stage << n;
      EXPECT_EQ(told[0]->checkpoints, (std::vector<std::int64_t>{2}));
      EXPECT_NE(told[0]->messages.find("fast_dev_run: 2 steps, an evaluation and a checkpoint went well"),
                std::string::npos)
          << told[0]->messages;
      EXPECT_TRUE(fs::is_empty(place.path())) << "neither a run nor a trial";
      train_by(n, config({}));
      const std::string bits = weights_of(config({}));
      const auto once = train_by(n, config({"fast_dev_run=true"}));
      EXPECT_EQ(once[0]->losses.size(), 1u);
      EXPECT_TRUE(weights_of(config({})) == bits) << "the run that is there is left alone";
    }
}

TEST(FastDevRun, LiesBesideItsRunHoweverThatIsWritten) {
  const TemporaryFolder place;
  for (const std::string& run : {place / "run", place / "run/", place / "run///"}) {
    Config config = mirror_run(place, "run", {"fast_dev_run=2"});
    config.run = run;
    Recorder told;
    run_ranks(1, [&](Communicator& ranks) {
      const auto fake = [&](const Config& trial, const Callbacks& callbacks) {
        EXPECT_EQ(trial.run, place / "run.fast_dev_run");
        EXPECT_EQ(trial.resume, "never");
        EXPECT_EQ(trial.eval.batches.of("").of(10), 2);
        EXPECT_EQ(callbacks.size(), 1u);
        fs::create_directory(trial.run);
        return TrainResult{.step = 1};
      };
      try_out(config, told, ranks, {}, fake);
      config.run = "/";
      try_out(config, told, ranks, {}, [](const Config& trial, const Callbacks&) {
        EXPECT_EQ(trial.run, "/.fast_dev_run");
        return TrainResult{.step = 2};
      });
    });
    EXPECT_TRUE(fs::is_empty(place.path()));
    EXPECT_EQ(told.messages,
              "fast_dev_run: 1 step, an evaluation and a checkpoint went well; nothing of them stays\n"
              "fast_dev_run: 2 steps, an evaluation and a checkpoint went well; nothing of them stays\n");
  }
}

TEST(FastDevRun, ThatFailsLeavesNothingEither) {
  const TemporaryFolder place;
  fs::create_directories(place / "run.fast_dev_run");
  write_text_file(place / "run.fast_dev_run/config.yaml", "what a killed one has left");
  TrainObserver silent;
  EXPECT_NE(error_of([&] {
              train(mirror_run(place, "run", {"fast_dev_run=1", "early_stopping={patience: 1, metric: f1}"}), silent);
            }).find("gives no 'f1'"),
            std::string::npos);
  EXPECT_TRUE(fs::is_empty(place.path()));
  EXPECT_NE(error_of([&] { mirror_run(place, "run", {"fast_dev_run=10%"}); }).find("expects a number of steps"),
            std::string::npos);
}

}  // namespace
}  // namespace keel
