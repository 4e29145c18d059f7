// Runs of models with buffers: these are trained, saved, averaged and compared as weights are.

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "keel/autograd/checkpoint.h"
#include "keel/data/safetensors.h"
#include "keel/nn/batch_norm.h"
#include "keel/runtime/random.h"
#include "keel/trainer/compare.h"
#include "keel/trainer/config_keys.h"
#include "tests/error_of.h"
#include "tests/support.h"
#include "tests/trainer/centring_layer.h"
#include "tests/trainer/run_support.h"
#include "tests/trainer/small_task.h"

namespace keel {
namespace {

using namespace testing;

// Points far from the origin, and a hill over them.
DatasetPtr hill(std::int64_t points) {
  return made_dataset(points, "hill", [](std::int64_t i) {
    std::vector<float> place(2);
    fill_uniform(place, 1, "place", static_cast<std::uint64_t>(2 * i));
    Example example;
    example.set("height", Numbers{{1}, {std::exp(-place[0] * place[0]) * place[1]}});
    for (float& each : place) each += 2;
    example.set("place", Numbers{{2}, place});
    return example;
  });
}

class Survey : public Task {
 public:
  explicit Survey(const TaskSite& site) : site_(site), norm_(site.settings.flag("task.norm")) {}
  Module& model() override { return norm_ ? static_cast<Module&>(normed_) : bare_; }
  Data data() override { return make_data(site_, hill(site_.settings.integer("task.points")), 0.25, stack()); }
  Loss training_step(const Batch& batch, Forward& pass) override {
    const Variable place = input(batch, "place", pass);
    const auto heights = [&](const Variable& x) { return norm_ ? normed_(x, pass) : bare_(x, pass); };
    const bool recomputes = pass.training && site_.settings.flag("task.recompute");
    return mse_loss(recomputes ? checkpoint(heights, place) : heights(place), input(batch, "height", pass));
  }

 private:
  TaskSite site_;
  bool norm_;
  Sequential normed_{Centring(2), Linear(2, 12), BatchNorm(12), Activation(ActivationKind::tanh), Linear(12, 1)};
  Sequential bare_{Centring(2), Linear(2, 12), Activation(ActivationKind::tanh), Linear(12, 1)};
};

Config survey_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  static const auto keys = keys_of_task<Survey>(
      "survey", {{.key = "task.points", .type = KeyType::integer, .standard = "96", .help = "Points.", .low = 1},
                 {.key = "task.norm", .type = KeyType::flag, .standard = "true", .help = "With batch norm."},
                 {.key = "task.recompute", .type = KeyType::flag, .standard = "false", .help = "Forward twice."}});
  return task_run(keys, R"(
steps: 9
batch: {global: 24, micro: 2}
optimizer: {lr: 1e-2}
eval: {every: 3}
checkpoint: {every: 4}
log: {every: 1}
threads: 1
)",
                  place, run, std::move(more));
}

using BufferNumbers = std::map<std::string, std::vector<double>>;

// Of the buffers alone.
BufferNumbers buffers_at(const Config& config, std::int64_t step, std::string_view section = "weights") {
  const std::string path = RunFolder(config.run).checkpoint(step);
  const Manifest manifest = read_manifest(path);
  BufferNumbers buffers;
  for (const TensorPart& part : ExtentReader(path, manifest).read(section, Context::create({.threads = 1})))
    for (const char* end : {"middle", "running_mean", "running_var"})
      if (part.name.ends_with(end)) buffers[part.name] = doubles(part.values);
  return buffers;
}

TEST(BuffersInRuns, HaveTheSameBitsInEveryStageAndAfterAResumeInAnotherOne) {
  // Of 35 points, an epoch's last step has two rows: fewer than there are ranks, and too few for batch norm.
  for (const auto& [norm, points] :
       {std::pair("task.norm=true", "task.points=96"), {"task.norm=false", "task.points=35"}})
    for (const int n : {1, 2, 3, 4}) {
      const TemporaryFolder place;
      const auto run = [&, norm = norm, points = points](const std::string& name, std::vector<std::string> more) {
        more.insert(more.end(), {norm, points});
        return survey_run(place, name, more);
      };
      expect_one_training_in_all_stages(n, run);
      const std::vector<std::string> again = {"strategy=zero3-fp32", "task.recompute=true"};
      train_by(n, run("recomputed", again));
      EXPECT_TRUE(weights_of(run("recomputed", again)) == weights_of(run("ddp", {}))) << norm << n;
      const SafetensorsFile model(RunFolder(run("ddp", {}).run).model());
      EXPECT_TRUE(model.contains("layers.0.middle"));
      EXPECT_EQ(model.contains("layers.2.running_var"), norm == std::string_view("task.norm=true"));
    }
}

TEST(BuffersInRuns, AreFoundBackByFewerRanks) {
  const TemporaryFolder place;
  const auto run = [&](const char* name, const char* stage) {
    return survey_run(place, name, {"task.norm=false", "resume=auto", concat("strategy=", stage)});
  };
  train_by(1, run("whole", "ddp-fp32"));
  train_by(4, run("elastic", "zero3-fp32"), 3);
  train_by(3, run("elastic", "zero1-fp32"), 6);
  train_by(2, run("elastic", "zero3-fp32"));
  const std::vector<double> whole = buffers_at(run("whole", "ddp"), 9).at("layers.0.middle"),
                            elastic = buffers_at(run("elastic", "ddp"), 9).at("layers.0.middle");
  // The mean of the places, of which 0.7^9 is missing yet.
  EXPECT_GT(whole[0], 1.7);
  EXPECT_LT(relative_error(elastic, whole), 1e-6);
}

TEST(BuffersInRuns, StandStillInStepsThatAreSkipped) {
  for (const int n : {1, 2}) {
    const TemporaryFolder place;
    const Config config =
        survey_run(place, "run", {"strategy=zero2-fp16", "steps=3", "checkpoint.every=1", "loss_scale.initial=1e30"});
    EXPECT_NE(error_of([&] { train_by(n, config); }).find("every step of this run was skipped"), std::string::npos);
    const BufferNumbers first = {{"layers.0.middle", std::vector<double>(2, 0)},
                                 {"layers.2.running_mean", std::vector<double>(12, 0)},
                                 {"layers.2.running_var", std::vector<double>(12, 1)}};
    EXPECT_EQ(buffers_at(config, 3), first);
  }
}

TEST(BuffersInRuns, AreAveragedWithTheWeights) {
  const TemporaryFolder place;
  const auto run = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.begin(), {"checkpoint={every: 1, keep: 100}"});
    return survey_run(place, name, more);
  };
  train_by(1, run("plain", {}));
  for (const int n : {1, 2}) {
    double validation = 0;
    for (const char* stage : {"ddp", "zero3"}) {
      const Config config =
          run(concat(stage, n), {concat("strategy=", stage, "-fp32"), "ema={decay: 0.5, warmup: false}"});
      const double now = train_by(n, config)[0]->validation;
      if (stage == std::string_view("ddp")) validation = now;
      EXPECT_EQ(now, validation) << stage << n;
      BufferNumbers average = {{"layers.0.middle", std::vector<double>(2, 0)},
                               {"layers.2.running_mean", std::vector<double>(12, 0)},
                               {"layers.2.running_var", std::vector<double>(12, 1)}};
      for (std::int64_t step = 1; step <= 9; ++step)
        for (const auto& [name, numbers] : buffers_at(config, step))
          for (std::size_t i = 0; i < numbers.size(); ++i) average[name][i] = (average[name][i] + numbers[i]) / 2;
      for (const auto& [name, numbers] : buffers_at(config, 9, "callback.ema"))
        EXPECT_LT(relative_error(numbers, average.at(name)), 1e-6) << name;
      EXPECT_EQ(buffers_at(config, 9, "callback.ema").size(), 3U);
      // What was evaluated is not what is trained on.
      if (n == 1) { EXPECT_EQ(buffers_at(config, 9), buffers_at(run("plain", {}), 9)) << stage; }
    }
  }
}

TEST(BuffersInRuns, AreComparedInAllStagesAndCountedByFormulas) {
  const TemporaryFolder place;
  const Config config = survey_run(place, "run");
  for (const int n : {1, 2, 3}) {
    std::vector<ComparedRun> runs;
    run_ranks(n, [&](Communicator& ranks) {
      TrainObserver silent;
      CompareAxes axes;
      axes.strategies = {"ddp-fp32", "zero1-fp32", "zero2-fp32", "zero3-fp32"};
      const std::vector<ComparedRun> all =
          compare(variants_of(config, axes), {.steps = 3, .repeats = 1}, silent, ranks);
      if (ranks.rank() == 0) runs = all;
    });
    ASSERT_EQ(runs.size(), 4U);
    for (const ComparedRun& each : runs) {
      EXPECT_EQ(each.fingerprint, runs.front().fingerprint) << each.name;
      EXPECT_EQ(each.sent, each.sent_by_formula) << each.name;
      EXPECT_EQ(each.kept, each.kept_by_formula) << each.name;
    }
  }
}

}  // namespace
}  // namespace keel
