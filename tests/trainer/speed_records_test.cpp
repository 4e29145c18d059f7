// What records say of work, speed, memory and rates, against counts by hand.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "keel/autograd/functions.h"
#include "keel/data/safetensors.h"
#include "keel/dist/checkpoint/memory_folder.h"
#include "keel/nn/layers.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/metrics.h"
#include "tests/trainer/run_support.h"
#include "tests/trainer/small_task.h"

namespace keel {
namespace {

using namespace testing;

// The records of training steps.
std::vector<Json> step_records(const Config& config) {
  std::vector<Json> all;
  for (Json& record : read_metrics(RunFolder(config.run).metrics()))
    if (record.contains("lr")) all.push_back(std::move(record));
  return all;
}

// Of a step of small_run(): 6 windows of 16 tokens, 2 layers of width 16. A product of a token's vector with a matrix
// of n numbers takes 2 n operations, forward and for the gradient of either; a token sees itself and those before it.
double flops_of_small_step(const Config& config) {
  double vocabulary = 0;
  const SafetensorsFile model(RunFolder(config.run).model());
  for (const SafetensorsEntry& entry : model.entries())
    if (entry.name.ends_with("wte.weight")) vocabulary = static_cast<double>(entry.shape[0]);
  const double tokens = 6 * 16, width = 16, pairs = 6 * 16 * 17 / 2.0;
  const double matrices = vocabulary * width + 2 * 12 * width * width;
  return 3 * (tokens * 2 * matrices + 2 * pairs * 4 * width);
}

TEST(SpeedRecords, HaveTheOperationsOfAStepHoweverItIsDivided) {
  const TemporaryFolder place;
  for (const int n : {1, 2, 3, 4})
    for (const char* micro : {"batch.micro=1", "batch.micro=4"}) {
      const Config config = small_run(place, concat("run", n, micro),
                                      {"steps=4", micro, n == 3 ? "strategy=zero3-fp32" : "strategy=ddp"});
      train_by(n, config);
      const std::vector<Json> records = step_records(config);
      ASSERT_EQ(records.size(), 4u);
      for (const Json& record : records)
        EXPECT_EQ(record.at("model_flops").number(), flops_of_small_step(config)) << n << ' ' << micro;
    }
}

TEST(SpeedRecords, CountEveryEvaluationOfAnOptimizerThatRepeatsAStep) {
  const TemporaryFolder place;
  const Config config =
      small_run(place, "run", {"steps=3", "optimizer={type: LBFGS, lr: 0.1}", "clip=0", "model.dropout=0"});
  train_by(2, config);
  for (const Json& record : step_records(config))
    EXPECT_EQ(record.at("model_flops").number(), record.at("evaluations").number() * flops_of_small_step(config));
}

TEST(SpeedRecords, HaveAShareOfAPeakThatIsStatedAndOfNoOther) {
  const TemporaryFolder place;
  const Config stated = small_run(place, "stated", {"log.peak_flops=2e9", "strategy=zero2-fp32"}),
               silent = small_run(place, "silent", {"steps=4"});
  train_by(2, stated);
  train_by(2, silent);
  for (const Json& record : step_records(silent)) EXPECT_FALSE(record.contains("flops_utilization"));
  const std::vector<Json> records = step_records(stated);
  ASSERT_EQ(records.size(), 12u);
  for (const Json& record : records) {
    const double steps_per_s = record.at("tokens_per_s").number() / (6 * 16);
    EXPECT_NEAR(record.at("flops_utilization").number(), flops_of_small_step(stated) * steps_per_s / (2 * 2e9),
                1e-12 * steps_per_s);
  }
}

TEST(SpeedRecords, HaveTheMemoryOfTheProcess) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"steps=4"});
  train_by(1, config);
  double peak = 0;
  for (const Json& record : read_metrics(RunFolder(config.run).metrics()))
    if (record.contains("peak_resident_bytes")) peak = record.at("peak_resident_bytes").number();
  for (const Json& record : step_records(config)) {
    EXPECT_GT(record.at("resident_bytes").number(), 1e6);
    EXPECT_LE(record.at("resident_bytes").number(), 1.01 * peak) << "the kernel counts in pages of each thread's own";
    EXPECT_FALSE(record.contains("device_bytes")) << "there is none";
  }
}

// Rows of 1 to 5 ids.
DatasetPtr numbers_of_steps() {
  return made_dataset(20, "steps", [](std::int64_t i) {
    const std::int64_t count = i % 5 + 1;
    return Example().set("ids", Integers{{count}, std::vector<std::int64_t>(static_cast<std::size_t>(count), i % 7)});
  });
}

// A table, which multiplies nothing, and a matrix of 8 times 3, on rows that are filled up to the longest.
class Walk : public Task {
 public:
  explicit Walk(const TaskSite& site) : site_(site) {}
  Module& model() override { return net_; }
  Data data() override {
    return {.training = make_source(site_.host, numbers_of_steps(), sequential(20, site_.rows),
                                    pad({.fields = {{"ids"}}}), {.varying = {"ids"}})};
  }
  Loss training_step(const Batch& batch, Forward& pass) override {
    return {mean(square(net_.out(net_.table(batch["ids"]), pass))), "rows"};
  }

 protected:
  Embedding& table() { return net_.table; }

 private:
  struct Net : Module {
    Embedding table{7, 8};
    Linear out{8, 3};
    void visit(Visitor& v) override {
      v("table", table);
      v("out", out);
    }
  };
  TaskSite site_;
  Net net_;
};

TEST(SpeedRecords, LeaveOutWhatFillsUpShortRowsAndLookUpsInTables) {
  static const auto keys = keys_of_task<Walk>("walk");
  const TemporaryFolder place;
  for (const int n : {1, 2, 3}) {
    const Config config = task_run(keys, R"(
steps: 4
batch: {global: 5, micro: 2}
checkpoint: {every: 0}
log: {every: 1}
threads: 1
)",
                                   place, concat("run", n));
    train_by(n, config);
    const std::vector<Json> records = step_records(config);
    ASSERT_EQ(records.size(), 4u);
    for (const Json& record : records)
      EXPECT_EQ(record.at("model_flops").number(), 3 * (1 + 2 + 3 + 4 + 5) * 2 * 8 * 3) << n;
  }
}

class LookUp : public Walk {
 public:
  using Walk::Walk;
  Loss training_step(const Batch& batch, Forward&) override { return {mean(square(table()(batch["ids"]))), "rows"}; }
};

TEST(SpeedRecords, HaveNoShareOfAPeakWhereNothingIsMultiplied) {
  static const auto keys = keys_of_task<LookUp>("look_up");
  const TemporaryFolder place;
  const Config config = task_run(keys, R"(
steps: 2
batch: {global: 5}
checkpoint: {every: 0}
log: {every: 1, peak_flops: 1e9}
threads: 1
)",
                                 place, "run");
  train_by(1, config);
  const std::vector<Json> records = step_records(config);
  ASSERT_EQ(records.size(), 2u);
  for (const Json& record : records) {
    EXPECT_FALSE(record.contains("model_flops"));
    EXPECT_FALSE(record.contains("flops_utilization"));
  }
}

TEST(RateRecords, AreOfGroupsThatHaveRatesOfTheirOwn) {
  const TemporaryFolder place;
  const auto rates_of = [&](const std::string& run, std::vector<std::string> more) {
    more.insert(more.end(), {"steps=5", "strategy=zero3-fp32"});
    const Config config = small_run(place, run, more);
    train_by(2, config);
    std::map<std::string, double> factors;
    for (const Json& record : step_records(config))
      for (const auto& [name, value] : record.members())
        if (name.starts_with("lr/")) {
          const double factor = value.number() / record.at("lr").number();
          EXPECT_NEAR(factors.emplace(name, factor).first->second, factor, 1e-12);
        }
    return factors;
  };
  const auto expect_rates = [](const std::map<std::string, double>& found,
                               const std::map<std::string, double>& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, factor] : expected) {
      ASSERT_TRUE(found.contains(name)) << name;
      EXPECT_NEAR(found.at(name), factor, 1e-12) << name;
    }
  };
  expect_rates(rates_of("plain", {"optimizer.groups=[{match: bias, weight_decay: 0}]"}), {});
  expect_rates(rates_of("groups", {"optimizer.groups=[{match: bias, lr_factor: 2}, {match: wpe, weight_decay: 0}]"}),
               {{"lr/group_1", 2}, {"lr/group_2", 1}, {"lr/others", 1}});
  // Embeddings, two blocks, and what follows them.
  expect_rates(
      rates_of("layers", {"optimizer.layer_decay=0.5", "optimizer.groups=[{match: wpe, lr_factor: 4}]"}),
      {{"lr/group_1", 0.5}, {"lr/layer_0", 0.125}, {"lr/layer_1", 0.25}, {"lr/layer_2", 0.5}, {"lr/layer_3", 1}});
}

// Takes its time where a run does something between steps.
class TakingTime : public Recorder {
 public:
  void on_eval(const EvalReport&) override { wait(); }
  void on_checkpoint(const CheckpointReport& report) override {
    if (report.step < 4) wait();
  }
  double waited_s = 0;

 private:
  void wait() {
    constexpr auto kWait = std::chrono::milliseconds(5);
    std::this_thread::sleep_for(kWait);
    if (losses.size() < 4) waited_s += std::chrono::duration<double>(kWait).count();
  }
};

TEST(SpeedRecords, LeaveOutTheTimeOfWhatIsDoneBetweenSteps) {
  const TemporaryFolder place;
  const std::string memory = place / "memory";
  std::filesystem::create_directory(memory);
  ::setenv(MemoryFolder::kVariable, memory.c_str(), 1);
  for (const char* between : {"eval.every=2", "checkpoint.every=2", "checkpoint.memory_every=2"}) {
    const Config config = small_run(
        place, between,
        {"steps=4", "model.layers=1", "eval.every=0", "checkpoint.every=0", "checkpoint.async=false", between});
    TakingTime observer;
    train(config, observer);
    const std::vector<Json> records = step_records(config);
    ASSERT_EQ(records.size(), 4U);
    double of_steps = 0;
    for (const Json& record : records) of_steps += record.at("step_ms").number() / 1e3;
    const double left = records.back().at("elapsed_s").number() - of_steps;
    constexpr double kRounding = 1e-6;  // of clocks, and far less than files take
    EXPECT_GT(left, kRounding) << between;
    EXPECT_GT(left, observer.waited_s - kRounding) << between;
    EXPECT_EQ(observer.waited_s > 0, std::string_view(between) != "checkpoint.memory_every=2");
  }
  ::unsetenv(MemoryFolder::kVariable);
}

}  // namespace
}  // namespace keel
