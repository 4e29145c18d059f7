// Evaluations before the first step of a run: one that is recorded, and one that only looks for mistakes.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "keel/autograd/functions.h"
#include "keel/nn/layers.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/metrics.h"
#include "tests/error_of.h"
#include "tests/trainer/run_support.h"
#include "tests/trainer/small_task.h"

namespace keel {
namespace {

using namespace testing;

// Numbers 0, 1, 2, ... below `size`, over 10.
DatasetPtr tenths(std::int64_t size) {
  return made_dataset(size, "tenths", [](std::int64_t i) {
    return Example().set("x", Numbers{{1}, {static_cast<float>(i) / 10}});
  });
}

// Learns x from x; has two validation sets, and cannot evaluate the second where it is told so.
class Repeat : public Task {
 public:
  explicit Repeat(const TaskSite& site) : site_(site) {}
  Module& model() override { return net_; }
  Data data() override {
    Data data = make_data(site_, tenths(24), 0, stack());
    for (const char* name : {"near", "far"}) {
      const std::int64_t size = name == std::string_view("far") ? 40 : 7;
      data.validation.push_back(
          {name, make_source(site_.host, tenths(size), sequential(size, site_.validation_rows), stack())});
    }
    return data;
  }
  Loss training_step(const Batch& batch, Forward& pass) override {
    return mse_loss(net_(input(batch, "x", pass), pass), input(batch, "x", pass));
  }
  void make_metrics(std::string_view set, Metrics&) override { set_ = set; }
  void validation_step(const Batch& batch, Forward& pass, Metrics& metrics) override {
    KEEL_CHECK(set_ != "far" || !site_.settings.flag("task.fails"), "what is far cannot be seen");
    Task::validation_step(batch, pass, metrics);
  }

 private:
  TaskSite site_;
  std::string set_;  // that is evaluated
  Mlp net_{{1, 8, 1}, ActivationKind::tanh};
};

Config repeat_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  static const auto keys = keys_of_task<Repeat>(
      "repeat", {{.key = "task.fails", .type = KeyType::flag, .standard = "false", .help = "In the second set."}});
  return task_run(keys, R"(
steps: 5
batch: {global: 6, micro: 2}
optimizer: {lr: 1e-2}
eval: {every: 2}
checkpoint: {every: 0}
log: {every: 1}
threads: 1
)",
                  place, run, std::move(more));
}

std::vector<std::pair<std::int64_t, double>> evaluations_of(const Config& config, const std::string& name) {
  std::vector<std::pair<std::int64_t, double>> all;
  for (const Json& record : read_metrics(RunFolder(config.run).metrics()))
    if (record.contains(name)) all.emplace_back(record.at("step").integer(), record.at(name).number());
  return all;
}

TEST(FirstEvaluation, IsOfTheInitialWeightsAndChangesNoBitOfTheTraining) {
  for (const int n : {1, 2, 3}) {
    const TemporaryFolder place;
    const auto config = [&](const char* name, std::vector<std::string> more = {}) {
      more.emplace_back("strategy=zero3-fp32");
      return repeat_run(place, name, more);
    };
    train_by(n, config("plain"));
    const Config first = config("first", {"eval.at_start=true", "eval.sanity=2"});
    train_by(n, first);
    EXPECT_TRUE(weights_of(first) == weights_of(config("plain"))) << n;
    const Config still = config("still", {"optimizer.lr=1e-30", "scheduler={type: constant}", "steps=1"});
    train_by(n, still);
    for (const char* set : {"near/loss", "far/loss"}) {
      const auto all = evaluations_of(first, set), plain = evaluations_of(config("plain"), set);
      ASSERT_EQ(all.size(), plain.size() + 1) << set;
      EXPECT_EQ(all[0].first, 0);
      EXPECT_TRUE(std::equal(plain.begin(), plain.end(), all.begin() + 1)) << set;
      EXPECT_EQ(evaluations_of(still, set)[0].second, all[0].second) << set << ' ' << n;
    }
  }
}

TEST(FirstEvaluation, IsOnceInARunAndMakesNoCheckpoint) {
  const TemporaryFolder place;
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"eval.at_start=true", "eval.every=0", "checkpoint.best=near/loss"});
    return repeat_run(place, "run", more);
  };
  Recorder told(3);
  train(run({}), told);
  EXPECT_EQ(told.checkpoints, (std::vector<std::int64_t>{3}));
  train_by(1, run({"resume=auto"}));
  const auto all = evaluations_of(run({}), "near/loss");
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [](const auto& each) { return each.first == 0; }), 1);
}

TEST(FirstEvaluation, FindsWhatIsWrongWithALaterOneBeforeAnythingIsWritten) {
  for (const int n : {1, 2}) {
    const TemporaryFolder place;
    const Config config = repeat_run(place, "run", {"task.fails=true", "eval.sanity=1"});
    const std::string error = error_of([&] { train_by(n, config); });
    EXPECT_TRUE(error.find("eval.sanity: ") != std::string::npos &&
                error.find("what is far cannot be seen") != std::string::npos)
        << error;
    EXPECT_FALSE(std::filesystem::exists(RunFolder(config.run).metrics()));
    EXPECT_FALSE(std::filesystem::exists(RunFolder(config.run).config()));
  }
}

TEST(FirstEvaluation, SanityLeavesNoRecord) {
  const TemporaryFolder place;
  const Config config = repeat_run(place, "run", {"eval.sanity=9"});
  train_by(2, config);
  const auto all = evaluations_of(config, "far/loss");
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].first, 2);
}

}  // namespace
}  // namespace keel
