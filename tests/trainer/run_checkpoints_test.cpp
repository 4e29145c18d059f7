// When a run makes checkpoints, which stay, and that they are the same beside the training.

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "keel/data/safetensors.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;
using Steps = std::vector<std::int64_t>;

Steps steps_of(const Config& config) { return RunFolder(config.run).checkpoint_steps(); }

TEST(RunCheckpoints, BesideTheTrainingHaveTheBytesOfThoseAtOnce) {
  for (const int n : {1, 2, 3})
    for (const std::string stage : {"ddp", "zero3"}) {
      const TemporaryFolder place;
      std::map<std::string, std::map<std::string, std::string>> files;
      for (const std::string async : {"true", "false"}) {
        const Config config = small_run(
            place, async,
            {"strategy=" + stage + "-bf16", "checkpoint.every=1", "checkpoint.keep=100", "checkpoint.async=" + async});
        const auto recorders = train_by(n, config);
        for (const auto& recorder : recorders) {
          EXPECT_EQ(recorder->checkpoints.size(), 12u);
          EXPECT_TRUE(std::is_sorted(recorder->checkpoints.begin(), recorder->checkpoints.end()));
        }
        EXPECT_EQ(read_text_file(RunFolder(config.run).latest()), "step-00000012\n");
        for (const auto& entry : std::filesystem::recursive_directory_iterator(config.run + "/checkpoints"))
          if (entry.is_regular_file() && entry.path().extension() == ".safetensors")
            files[async][entry.path().lexically_relative(config.run).string()] = read_text_file(entry.path().string());
      }
      EXPECT_GE(files["true"].size(), 24u);
      EXPECT_TRUE(files["true"] == files["false"]) << stage << " by " << n;
    }
}

TEST(RunCheckpoints, OfEveryKthStepStayBesideTheNewest) {
  for (const std::string async : {"true", "false"}) {
    const TemporaryFolder place;
    const Config config =
        small_run(place, "run",
                  {"checkpoint.every=1", "checkpoint.keep=2", "checkpoint.keep_every=4", "checkpoint.async=" + async});
    train_by(2, config);
    EXPECT_EQ(steps_of(config), (Steps{4, 8, 10, 11, 12})) << async;
  }
}

TEST(RunCheckpoints, AreMadeByTheClockOfTheFirstRank) {
  for (const int n : {1, 3}) {
    const TemporaryFolder place;
    const Config often =
        small_run(place, "often", {"checkpoint.every=0", "checkpoint.minutes=1e-9", "checkpoint.keep=100"});
    train_by(n, often);
    EXPECT_EQ(steps_of(often).size(), 12u) << n;
    const Config never = small_run(place, "never", {"checkpoint.every=0", "checkpoint.minutes=60"});
    train_by(n, never);
    EXPECT_EQ(steps_of(never), Steps{12}) << n;
  }
}

// Asks for a checkpoint after a step.
class Asking : public Recorder {
 public:
  explicit Asking(std::size_t step) : step_(step) {}
  bool save_requested() override { return losses.size() == step_; }

 private:
  std::size_t step_;
};

TEST(RunCheckpoints, AreMadeWhenAnyRankAsks) {
  for (const int n : {1, 3}) {
    const TemporaryFolder place;
    const Config config = small_run(place, "run", {"checkpoint.every=0", "checkpoint.keep=100"});
    run_ranks(n, [&](Communicator& ranks) {
      Asking asking(ranks.rank() == n - 1 ? 3 : 1000);
      train(config, asking, ranks);
      // Several ranks exchange what they want within a step.
      EXPECT_EQ(asking.checkpoints, (Steps{n == 1 ? 3 : 4, 12})) << n;
    });
  }
}

// Puts a file where checkpoints are to be while the run goes on, and takes it away again.
class InTheWay : public Recorder {
 public:
  explicit InTheWay(const RunFolder& folder) : folder_(folder) {}
  void on_step(const StepReport& report) override {
    Recorder::on_step(report);
    if (report.step == 6) std::filesystem::rename(checkpoints_folder(), checkpoints_folder() + "-aside");
    if (report.step == 6) write_text_file(checkpoints_folder(), "");
    if (report.step == 11) std::filesystem::remove(checkpoints_folder());
    if (report.step == 11) std::filesystem::rename(checkpoints_folder() + "-aside", checkpoints_folder());
  }

 private:
  std::string checkpoints_folder() const { return folder_.path() + "/checkpoints"; }
  const RunFolder& folder_;
};

TEST(RunCheckpoints, ThatCannotBeMadeAreToldLoudlyAndTheRunGoesOn) {
  for (const std::string async : {"true", "false"})
    for (const int n : {1, 2}) {
      const TemporaryFolder place;
      const Config config = small_run(
          place, "run", {"checkpoint.every=2", "checkpoint.keep=100", "checkpoint.async=" + async, "eval.every=0"});
      const RunFolder folder(config.run);
      run_ranks(n, [&](Communicator& ranks) {
        InTheWay first(folder);
        Recorder other;
        Recorder& recorder = ranks.rank() == 0 ? first : other;
        EXPECT_EQ(train(config, recorder, ranks).step, 12);
        EXPECT_NE(recorder.messages.find("no checkpoint of step 8: "), std::string::npos) << recorder.messages;
        EXPECT_NE(recorder.messages.find("no checkpoint of step 10: "), std::string::npos) << recorder.messages;
        EXPECT_EQ(recorder.messages.find("no checkpoint of step 12: "), std::string::npos) << recorder.messages;
      });
      EXPECT_EQ(steps_of(config).back(), 12);
      EXPECT_EQ(read_whole(folder.checkpoint(12)).step, 12);
    }
}

TEST(RunCheckpoints, GiveTheRunTheSameFileOfWeightsInEveryStage) {
  struct Case {
    std::vector<std::string> settings;
    std::string dtypes;  // that the file has
  };
  const Case cases[] = {{{"strategy=bf16"}, "f32 "},
                        {{"strategy=bf16", "optimizer.stochastic_rounding=true"}, "bf16 "},
                        {{"strategy=bf16", "model.lora_rank=2"}, "bf16 f32 "}};
  for (const Case& each : cases)
    for (const int n : {1, 2, 3}) {
      const TemporaryFolder place;
      const auto weights_by = [&](const std::string& stage) {
        std::vector<std::string> settings = each.settings;
        settings.insert(settings.end(),
                        {"steps=2", "scheduler.warmup=1", concat("strategy=", stage, "-bf16"), "batch.micro=2"});
        const Config config = small_run(place, stage, settings);
        train_by(n, config);
        return weights_of(config);
      };
      const std::string first = weights_by("ddp");
      for (const char* stage : {"zero1", "zero2", "zero3"})
        EXPECT_TRUE(weights_by(stage) == first) << each.dtypes << stage << " by " << n;
      std::set<std::string> dtypes;
      const SafetensorsFile file(RunFolder(place / "zero3").model());
      for (const SafetensorsEntry& entry : file.entries()) dtypes.emplace(name_of(entry.dtype));
      std::string all;
      for (const std::string& dtype : dtypes) all += dtype + ' ';
      EXPECT_EQ(all, each.dtypes) << n;
    }
}

}  // namespace
}  // namespace keel
