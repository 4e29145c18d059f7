// Averages of weights: their formulas in double precision, the same in every stage, in checkpoints and evaluations.

#include "keel/trainer/weight_averages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "keel/autograd/functions.h"
#include "keel/dist/checkpoint/export.h"
#include "keel/dist/comm/agreement.h"
#include "keel/dist/parallel/sharded.h"
#include "keel/nn/layers.h"
#include "keel/runtime/device_api.h"
#include "keel/trainer/config_keys.h"
#include "keel/trainer/metrics.h"
#include "tests/error_of.h"
#include "tests/support.h"
#include "tests/trainer/run_support.h"
#include "tests/trainer/small_task.h"

namespace keel {
namespace {

using namespace testing;

const std::vector<std::string> kEachStage = {"ddp", "zero1", "zero2", "zero3"};

using Numbers = std::vector<double>;

Numbers joined(const std::map<std::string, Numbers>& by_name) {
  Numbers all;
  for (const auto& [name, numbers] : by_name) all.insert(all.end(), numbers.begin(), numbers.end());
  return all;
}

// The numbers of a section of a checkpoint, tensor after tensor by name.
Numbers numbers_in(const std::string& checkpoint, std::string_view section) {
  const Manifest manifest = read_manifest(checkpoint);
  std::map<std::string, Numbers> by_name;
  for (const TensorPart& part : ExtentReader(checkpoint, manifest).read(section, Context::create({.threads = 1})))
    by_name[part.name] = doubles(part.values);
  return joined(by_name);
}

Config averaged_run(const TemporaryFolder& place, const std::string& name, std::vector<std::string> more) {
  more.insert(more.begin(), {"checkpoint.every=1", "checkpoint.keep=100"});
  return small_run(place, name, more);
}

Numbers weights_at(const Config& config, std::int64_t step) {
  return numbers_in(RunFolder(config.run).checkpoint(step), "weights");
}

double largest_difference(const Numbers& a, const Numbers& b) {
  double largest = a.size() == b.size() && !a.empty() ? 0 : 1e30;
  for (std::size_t i = 0; largest < 1e30 && i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST(WeightAverages, FollowTheirFormulas) {
  for (const char* warmup : {"true", "false"}) {
    const TemporaryFolder place;
    const Config config = averaged_run(
        place, "run",
        {"ema={decay: 0.6, evaluate: false, warmup: " + std::string(warmup) + "}", "swa={start: 4, every: 3}"});
    // What the run begins with is what one without a rate ends with.
    const Config still = averaged_run(place, "still", {"steps=3", "optimizer.lr=1e-30", "scheduler={type: constant}"});
    train_by(1, still);
    train_by(1, config);
    Numbers ema = weights_at(still, 3), swa;
    int joined = 0;
    for (int step = 1; step <= 12; ++step) {
      const Numbers weights = weights_at(config, step);
      const double t = step - 1, decay = warmup == std::string("true") ? std::min(0.6, (1 + t) / (10 + t)) : 0.6;
      for (std::size_t i = 0; i < ema.size(); ++i) ema[i] = decay * ema[i] + (1 - decay) * weights[i];
      if (step >= 4 && (step - 4) % 3 == 0) {
        if (joined++ == 0) swa.assign(weights.size(), 0);
        for (std::size_t i = 0; i < swa.size(); ++i) swa[i] += (weights[i] - swa[i]) / joined;
      }
      const std::string checkpoint = RunFolder(config.run).checkpoint(step);
      EXPECT_LT(largest_difference(numbers_in(checkpoint, "callback.ema"), ema), 1e-6) << "step " << step;
      if (joined == 0) continue;
      EXPECT_LT(largest_difference(numbers_in(checkpoint, "callback.swa"), swa), 1e-6) << "step " << step;
    }
    EXPECT_EQ(joined, 3);
  }
}

// y = 3 x + 1, of a weight and a bias, a number each.
class OneLine : public Task {
 public:
  explicit OneLine(const TaskSite& site) : site_(site) {}
  Module& model() override { return net_; }
  Data data() override {
    const auto points = [](std::int64_t i) {
      const auto x = static_cast<float>(i) / 4;
      return Example().set("x", keel::Numbers{{1}, {x}}).set("y", keel::Numbers{{1}, {3 * x + 1}});
    };
    Data data = make_data(site_, made_dataset(12, "line", points), 0, stack());
    data.validation = {{"", make_source(site_.host, made_dataset(4, "line", points), sequential(4, 4), stack())}};
    return data;
  }
  Loss training_step(const Batch& batch, Forward& pass) override {
    return mse_loss(net_(input(batch, "x", pass), pass), input(batch, "y", pass));
  }

 private:
  TaskSite site_;
  Linear net_{1, 1};
};

TEST(WeightAverages, AreEvaluatedToTheLastNumber) {
  static const auto keys = keys_of_task<OneLine>("one_line");
  const auto loss_at = [](const Numbers& line) {  // bias and weight
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += std::pow(line.at(0) + line.at(1) * i / 4 - (3.0 * i / 4 + 1), 2);
    return sum / 4;
  };
  for (const int n : {1, 3}) {
    const TemporaryFolder place;
    const auto trained = [&](const char* run, const char* average, const char* every, double& validation) {
      const Config config =
          task_run(keys, R"(
steps: 2
batch: {global: 4, micro: 2}
optimizer: {lr: 0.1}
scheduler: {type: constant}
eval: {every: 2}
threads: 1
)",
                   place, run,
                   {n == 1 ? "strategy=ddp-fp32" : "strategy=zero3-fp32", average, concat("checkpoint.every=", every)});
      validation = train_by(n, config)[0]->validation;
      return config;
    };
    double plain = 0, averaged = 0;
    const Config without = trained("without", "seed=1", "0", plain),
                 with = trained("with", "ema={decay: 0.75, warmup: false}", "1", averaged);
    const auto average_at = [&](std::int64_t step) {
      return numbers_in(RunFolder(with.run).checkpoint(step), "callback.ema");
    };
    const Numbers weights = weights_at(with, 2), average = average_at(2), before = average_at(1);
    EXPECT_EQ(weights, weights_at(without, 2)) << "they come back";
    EXPECT_NEAR(plain, loss_at(weights), 1e-6);
    EXPECT_NEAR(averaged, loss_at(average), 1e-6);
    EXPECT_GT(std::abs(averaged - plain), 1e-3);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(average[i], 0.75 * before[i] + 0.25 * weights[i], 1e-6);
  }
}

TEST(WeightAverages, HaveTheSameBitsInEveryStageAndAfterAResumeByAnyOther) {
  for (const std::string precision : {"fp32", "bf16", "fp16"})
    for (const int n : {1, 2, 3}) {
      const TemporaryFolder place;
      const auto config = [&](const std::string& name, const std::string& stage, const char* more = "seed=1") {
        return small_run(place, name,
                         {"strategy=" + stage + "-" + precision, "ema.decay=0.9", "swa={start: 2, rate_factor: 0.5}",
                          "loss_scale.initial=64", more});
      };
      const auto averages = [&](const Config& of) {
        Numbers all = numbers_in(RunFolder(of.run).checkpoint(12), "callback.ema");
        const Numbers mean = numbers_in(RunFolder(of.run).checkpoint(12), "callback.swa");
        all.insert(all.end(), mean.begin(), mean.end());
        return all;
      };
      Numbers first;
      for (const std::string& stage : kEachStage) {
        train_by(n, config(stage, stage));
        const Numbers mine = averages(config(stage, stage));
        if (first.empty()) first = mine;
        EXPECT_TRUE(mine == first) << stage << precision << " by " << n;
      }
      train_by(n, config("resumed", "zero1"), 6);
      train_by(n, config("resumed", "zero3", "resume=auto"));
      EXPECT_TRUE(averages(config("resumed", "zero3")) == first) << precision << " by " << n;
    }
}

// A scale of 2^100 makes every gradient of fp16 infinite, until it has fallen.
TEST(WeightAverages, StandStillInStepsThatAreSkipped) {
  const TemporaryFolder place;
  const Config config = averaged_run(place, "run",
                                     {"strategy=ddp-fp16", "ema={decay: 0.5, warmup: false}", "steps=4",
                                      "scheduler.warmup=1", "loss_scale.initial=1e30"});
  std::string told;
  {
    Recorder recorder;
    told = error_of([&] { train(config, recorder); });
  }
  EXPECT_NE(told.find("every step of this run was skipped"), std::string::npos) << told;
  const auto ema = [&](int step) { return numbers_in(RunFolder(config.run).checkpoint(step), "callback.ema"); };
  EXPECT_TRUE(ema(3) == weights_at(config, 3));
  EXPECT_TRUE(ema(3) == ema(1));
}

// What is evaluated is the average, and what is trained on are the weights, whatever becomes of the evaluation.
TEST(WeightAverages, AreEvaluatedInPlaceOfTheWeightsWhichComeBackToTheBit) {
  for (const std::string precision : {"fp32", "bf16"})
    for (const int n : {1, 2}) {
      const TemporaryFolder place;
      const auto run = [&](const char* name, const char* ema) {
        const Config config = small_run(
            place, name, {"strategy=zero3-" + precision, "eval.every=2", concat("ema=", ema), "checkpoint.every=100"});
        const auto recorders = train_by(n, config);
        return std::pair(weights_of(config), recorders[0]->validation);
      };
      const auto plain = run("plain", "{decay: 0}");
      const auto beside = run("beside", "{decay: 0.9, evaluate: false}"), swapped = run("swapped", "{decay: 0.9}");
      EXPECT_TRUE(beside.first == plain.first) << precision;
      EXPECT_TRUE(swapped.first == plain.first) << precision;
      EXPECT_EQ(beside.second, plain.second);
      EXPECT_NE(swapped.second, plain.second);
    }
}

// An evaluation leaves weights in memory, where those that come back are then written.
TEST(WeightAverages, AreEvaluatedTheSameWhereWeightsLieInFiles) {
  for (const std::string strategy : {"ddp-fp32", "zero2-bf16", "zero3-fp32"})
    for (const std::string average :
         {"ema.decay=0.9", "swa={start: 3, every: 2, evaluate: true}", "optimizer={type: ScheduleFreeAdamW, lr: 1e-2}"})
      for (const int n : {1, 2}) {
        const TemporaryFolder place;
        const auto run = [&](const std::string& residence) {
          const Config config = small_run(place, residence,
                                          {"strategy=" + strategy, average, "eval.every=2", "steps=6",
                                           "checkpoint.every=100", "sharding.offload_parameters=" + residence});
          const auto recorders = train_by(n, config);
          return std::pair(weights_of(config), recorders[0]->validation);
        };
        const auto in_memory = run("none"), in_files = run("file");
        const std::string what = concat(strategy, ", ", average, ", ", n, " ranks");
        EXPECT_TRUE(in_files.first == in_memory.first) << what;
        EXPECT_EQ(in_files.second, in_memory.second) << what;
      }
}

// The average lies where the weights do that it is of: with an offloaded optimizer, in the processor's memory.
TEST(WeightAverages, AreTheSameWhereverADevicesOptimizerWorks) {
  if (const DeviceCount found = count_devices(DeviceType::emulated); found.count == 0) GTEST_SKIP() << found.why_none;
  const TemporaryFolder place;
  const auto run = [&](const std::string& residence) {
    const Config config =
        small_run(place, residence,
                  {"device=emulated", "strategy=bf16", "ema.decay=0.9", "steps=2", "scheduler.warmup=1",
                   "eval.batches=1", "model.layers=1", "sharding.offload_optimizer=" + residence});
    const auto recorders = train_by(1, config);
    return std::pair(weights_of(config), recorders[0]->validation);
  };
  const auto on_device = run("device");
  for (const char* residence : {"host", "file"}) EXPECT_EQ(run(residence), on_device) << residence;
}

// Fails in its evaluation on every rank alike.
class Breaks : public Callback {
 public:
  std::string_view name() const override { return "breaks"; }
  void evaluation_begin(LoopView& view) override {
    if (view.state().step == 4) throw AgreedError("the evaluation broke");
  }
};

TEST(WeightAverages, AreSwappedOutBeforeASaveWhereTheEvaluationFailed) {
  for (const int n : {1, 2}) {
    const TemporaryFolder place;
    const Config plain = averaged_run(place, "plain", {"eval.every=100"});
    train_by(n, plain);
    const Config config = small_run(place, "run", {"eval.every=4", "ema.decay=0.9", "checkpoint.every=100"});
    EXPECT_EQ(error_of([&] {
                run_ranks(n, [&](Communicator& ranks) {
                  Recorder recorder;
                  train(config, recorder, ranks, {std::make_shared<Breaks>()});
                });
              }),
              "the evaluation broke");
    EXPECT_TRUE(weights_at(config, 4) == weights_at(plain, 4)) << n;
  }
}

TEST(WeightAverages, AreExported) {
  const TemporaryFolder place;
  const Config config = small_run(place, "run", {"ema.decay=0.9"});
  train_by(2, config);
  const std::string checkpoint = RunFolder(config.run).checkpoint(12);
  export_weights(checkpoint, read_manifest(checkpoint), place / "ema.safetensors", DType::f32, {}, "callback.ema");
  const Manifest file = describe_files(place.path(), "weights", std::vector<std::string>{"ema.safetensors"});
  std::map<std::string, Numbers> by_name;
  for (const TensorPart& part : ExtentReader(place.path(), file).read("weights", Context::create({.threads = 1})))
    by_name[part.name] = doubles(part.values);
  EXPECT_TRUE(joined(by_name) == numbers_in(checkpoint, "callback.ema"));
}

TEST(WeightAverages, OfTwoKindsAreNotEvaluatedBoth) {
  const TemporaryFolder place;
  const std::string told = error_of([&] {
    small_run(place, "run", {"ema.decay=0.9", "swa={start: 3, evaluate: true}"});
  });
  EXPECT_NE(told.find("swa.evaluate"), std::string::npos) << told;
  EXPECT_NE(told.find("evaluations are of one average; set this or ema.evaluate to false"), std::string::npos) << told;
  for (const char* of_ema : {"false", "true"})
    EXPECT_EQ(error_of([&] {
                small_run(place, "run",
                          {"ema.decay=0.9", concat("ema.evaluate=", of_ema),
                           concat("swa={start: 3, evaluate: ", of_ema == std::string("true") ? "false" : "true", "}")});
              }),
              "")
        << "ema.evaluate=" << of_ema;
}

}  // namespace
}  // namespace keel
