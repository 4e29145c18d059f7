#include "keel/trainer/trainer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "keel/data/safetensors.h"
#include "keel/runtime/file.h"
#include "keel/trainer/generate.h"
#include "keel/trainer/run_folder.h"
#include "tests/support.h"
#include "tests/trainer/run_support.h"

namespace keel {
namespace {

using namespace testing;

// The message of the Error that the run ends with.
std::string failure_of(const Config& config, ErrorKind kind = ErrorKind::input) {
  Recorder recorder;
  try {
    train(config, recorder);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

// Ways to keep the weights.
const std::vector<std::vector<std::string>> kWaysToKeepWeights = {
    {"strategy=fp32"}, {"strategy=bf16"}, {"strategy=bf16", "optimizer.stochastic_rounding=true"}};

TEST(Trainer, ContinuesAStoppedRunAsIfItHadNeverStopped) {
  for (const std::vector<std::string>& precision : kWaysToKeepWeights) {
    const TemporaryFolder place;
    Recorder whole, first(7), second;
    const Config uninterrupted = small_run(place, "a", precision);
    train(uninterrupted, whole);
    EXPECT_EQ(train(small_run(place, "b", precision), first).end, TrainEnd::stopped);
    std::vector<std::string> again = precision;
    again.push_back("resume=auto");
    const Config resumed = small_run(place, "b", again);
    EXPECT_EQ(train(resumed, second).step, 12);
    EXPECT_EQ(weights_of(uninterrupted), weights_of(resumed));
    std::vector<double> losses = first.losses;
    losses.insert(losses.end(), second.losses.begin(), second.losses.end());
    EXPECT_EQ(losses, whole.losses);
  }
}

TEST(Trainer, ContinuesInThePrecisionThatWasChosenWhenTheRunBegan) {
  for (const std::string strategy : {"fp32", "bf16"}) {
    const TemporaryFolder place;
    Recorder whole, first(7), second;
    const Config uninterrupted = small_run(place, "a", {"strategy=" + strategy});
    train(uninterrupted, whole);
    train(small_run(place, "b", {"strategy=" + strategy}), first);
    const Config resumed = small_run(place, "b", {"strategy=auto", "resume=auto"});
    train(resumed, second);
    EXPECT_EQ(weights_of(uninterrupted), weights_of(resumed));
    EXPECT_EQ(second.messages.find("other settings"), std::string::npos) << second.messages;
    EXPECT_EQ(to_string(load_config(RunFolder(resumed.run).config()).strategy), strategy);
  }
}

TEST(Trainer, ContinuesWithAWordWhereAnotherLengthChangesTheSchedule) {
  const auto told = [](const std::string& schedule) {
    const TemporaryFolder place;
    Recorder first, second;
    train(small_run(place, "a", {"steps=4", schedule}), first);
    const Config longer = small_run(place, "a", {"steps=6", "resume=auto", schedule});
    EXPECT_EQ(train(longer, second).step, 6);
    return second.messages.find("other settings than before: scheduler") != std::string::npos;
  };
  EXPECT_TRUE(told("scheduler={type: linear}"));
  EXPECT_FALSE(told("scheduler={type: linear, steps: 6}"));
  EXPECT_FALSE(told("scheduler={type: StepLR, step_size: 2}"));
}

TEST(Trainer, ContinuesAfterACrashFromTheNewestWholeCheckpoint) {
  const TemporaryFolder place;
  Recorder whole, recorder;
  const Config config = small_run(place, "a");
  train(config, whole);
  const std::string expected = weights_of(config);
  const RunFolder folder(config.run);
  ASSERT_EQ(folder.checkpoint_steps(), (std::vector<std::int64_t>{10, 12}));
  // The newest one is damaged in one byte of its optimizer, which its hash notices.
  const std::string damaged = folder.checkpoint(12) + "/optimizer.safetensors";
  std::string bytes = read_text_file(damaged);
  bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 1);
  write_text_file(damaged, bytes);
  train(small_run(place, "a", {"resume=auto"}), recorder);
  EXPECT_NE(recorder.messages.find("step 12 is not usable"), std::string::npos) << recorder.messages;
  EXPECT_EQ(recorder.losses.size(), 2u);
  EXPECT_EQ(weights_of(config), expected);

  for (const std::int64_t step : folder.checkpoint_steps())
    write_text_file(folder.checkpoint(step) + "/manifest.json", "{\"format\": 1, ");
  EXPECT_NE(failure_of(small_run(place, "a", {"resume=auto"})).find("no checkpoint"), std::string::npos);
}

TEST(Trainer, GivesTheSameBitsInMicroBatchesOfTheSameSizeAndTwice) {
  const TemporaryFolder place;
  Recorder a, b, c;
  train(small_run(place, "a"), a);
  train(small_run(place, "b"), b);
  EXPECT_EQ(a.losses, b.losses);
  train(small_run(place, "c", {"batch.micro=6"}), c);
  for (std::size_t i = 0; i < a.losses.size(); ++i) EXPECT_NEAR(a.losses[i], c.losses[i], 1e-3 * a.losses[i]);
}

// With dropout, whose masks are drawn again.
TEST(Trainer, GivesTheSameBitsWhereActivationsAreComputedAgain) {
  for (const int n : {1, 2, 3}) {
    const TemporaryFolder place;
    std::string bits;
    for (const char* recompute : {"false", "true"})
      for (const char* stage : {"ddp-fp32", "zero3-fp32"}) {
        const Config config = small_run(place, concat(stage, recompute),
                                        {concat("strategy=", stage), concat("model.recompute=", recompute)});
        train_by(n, config);
        if (bits.empty()) bits = weights_of(config);
        EXPECT_TRUE(weights_of(config) == bits) << stage << ' ' << recompute << ' ' << n;
      }
  }
}

TEST(Trainer, ClipsEachElementOfGradientsInEveryStageAndPrecision) {
  for (const int n : {1, 2, 3})
    for (const std::string precision : {"-fp32", "-fp16"}) {
      const TemporaryFolder place;
      const auto trained = [&](const std::string& run, std::vector<std::string> more) {
        const Config config = small_run(place, run, std::move(more));
        train_by(n, config);
        return weights_of(config);
      };
      const auto in_stage = [&](const char* stage, const char* clip, const char* by = "clip_by=value") {
        return trained(concat(stage, clip, by),
                       {concat("strategy=", stage, precision), clip, by, "loss_scale.initial=64"});
      };
      const std::string bits = in_stage("ddp", "clip=1e-3");
      for (const char* stage : {"zero1", "zero2", "zero3"})
        EXPECT_TRUE(in_stage(stage, "clip=1e-3") == bits) << stage << precision << n;
      EXPECT_FALSE(in_stage("ddp", "clip=1e-3", "clip_by=norm") == bits);
      EXPECT_TRUE(in_stage("ddp", "clip=1e9") == in_stage("zero3", "clip=1e9", "clip_by=norm")) << "nothing is clipped";
    }
}

TEST(Trainer, GivesTheSameBitsWhateverTheNumberOfThreadsThatLoadBatches) {
  const TemporaryFolder place;
  Recorder standard;
  const Config one = small_run(place, "1", {"batch.micro=2"});
  train(one, standard);
  for (const int workers : {0, 3}) {
    const std::string name = concat("data.workers=", workers);
    Recorder first(5), second;
    train(small_run(place, name, {"batch.micro=2", name}), first);
    // Goes on with another number of them, and without a word about it.
    train(small_run(place, name, {"batch.micro=2", concat("data.workers=", 3 - workers), "resume=auto"}), second);
    EXPECT_EQ(second.messages.find("other settings"), std::string::npos) << second.messages;
    EXPECT_EQ(weights_of(small_run(place, name)), weights_of(one)) << workers;
    std::vector<double> losses = first.losses;
    losses.insert(losses.end(), second.losses.begin(), second.losses.end());
    EXPECT_EQ(losses, standard.losses) << workers;
  }
}

TEST(Trainer, GivesTheSameBitsAtEveryThreadCountWithPlainKernels) {
  for (const std::vector<std::string>& precision : kWaysToKeepWeights) {
    const TemporaryFolder place;
    std::vector<std::string> weights;
    for (const int threads : {1, 2, 3}) {
      Recorder recorder;
      std::vector<std::string> settings = {"kernels=plain", concat("threads=", threads)};
      settings.insert(settings.end(), precision.begin(), precision.end());
      const Config config = small_run(place, concat("threads", threads), settings);
      train(config, recorder);
      weights.push_back(weights_of(config));
    }
    EXPECT_EQ(weights[0], weights[1]);
    EXPECT_EQ(weights[0], weights[2]);
  }
}

TEST(Trainer, LearnsToAddTwoDigitNumbersItHasNeverSeen) {
  const TemporaryFolder place;
  Recorder recorder;
  const Config config = parse_config(R"(
steps: 700
model: {layers: 2, heads: 4, width: 64, block: 9}
data: {type: addition, digits: 2}
batch: {global: 64}
optimizer: {lr: 5e-3, betas: [0.9, 0.98]}
scheduler: {warmup: 30, min_lr: 1e-4}
eval: {every: 0, samples: 400}
)",
                                     "two.yaml", {"run=" + (place / "add")});
  const TrainResult result = train(config, recorder);
  EXPECT_GE(*result.evaluation->find("exact_match"), 0.98);
  std::string answer;
  generate({.run = config.run, .prompt = "47+58="}, [&](std::string_view text) { answer += text; });
  EXPECT_EQ(answer, "47+58=105");
}

TEST(Trainer, CountsEvaluationsInNoStepsTokensPerSecond) {
  class Slow : public Recorder {
   public:
    void on_step(const StepReport& report) override { rates.push_back(report.units_per_s); }
    void on_eval(const EvalReport& report) override {
      if (report.step == 4) std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    std::vector<double> rates;
  };
  const TemporaryFolder place;
  Slow slow;
  train(small_run(place, "a", {"steps=5", "scheduler.warmup=1"}), slow);
  EXPECT_GT(slow.rates[4], slow.rates[3] / 4);  // some milliseconds a step; with the second in it, far less
}

TEST(Trainer, StopsAtANonFiniteLossWithTheFirstBadTensorAfterSaving) {
  const TemporaryFolder place;
  const Config config = small_run(place, "a", {"optimizer.lr=1e30", "scheduler={type: constant}", "model.dropout=0"});
  const std::string message = failure_of(config, ErrorKind::numeric);
  EXPECT_NE(message.find("step 2: the loss is"), std::string::npos) << message;
  EXPECT_NE(message.find("first bad tensor: output of "), std::string::npos) << message;
  EXPECT_EQ(RunFolder(config.run).checkpoint_steps(), std::vector<std::int64_t>{1});
}

TEST(Trainer, KeepsTrainingAndTheOldCheckpointWhenTheDiskIsFull) {
  const TemporaryFolder place;
  const Config config = small_run(place, "a", {"checkpoint.every=1", "checkpoint.keep=100"});
  // From step 3 on no file may grow beyond a few bytes, as on a full disk.
  class FullDisk : public Recorder {
   public:
    void on_step(const StepReport& report) override {
      Recorder::on_step(report);
      rlimit limit{report.step == 3 ? rlim_t{100} : before.rlim_max, before.rlim_max};
      if (report.step == 5) limit = before;
      if (report.step == 3 || report.step == 5) setrlimit(RLIMIT_FSIZE, &limit);
    }
    rlimit before{};
  } recorder;
  getrlimit(RLIMIT_FSIZE, &recorder.before);
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  Config quiet = config;
  quiet.log.every = 100;
  quiet.eval.every = 0;
  const TrainResult result = train(quiet, recorder);
  std::signal(SIGXFSZ, previous);
  EXPECT_EQ(result.step, 12);
  EXPECT_NE(recorder.messages.find("no checkpoint of step 3"), std::string::npos) << recorder.messages;
  EXPECT_EQ(RunFolder(config.run).checkpoint_steps(), (std::vector<std::int64_t>{1, 2, 5, 6, 7, 8, 9, 10, 11, 12}));
}

TEST(Trainer, LeavesARunAloneThatItWasNotAskedToContinue) {
  const TemporaryFolder place;
  Recorder recorder;
  const Config config = small_run(place, "a");
  train(config, recorder);
  const std::string before = weights_of(config);
  EXPECT_NE(failure_of(small_run(place, "a", {"steps=3"})).find("holds a run already"), std::string::npos);
  EXPECT_NE(
      failure_of(small_run(place, "a", {"resume=auto", "model.layers=1"})).find("another model: layers 2 instead"),
      std::string::npos);
  const std::string older = RunFolder(config.run).checkpoint(10);
  EXPECT_NE(failure_of(small_run(place, "a", {"resume=" + older})).find("newer checkpoint"), std::string::npos);
  write_text_file(place / "text.txt", "another text with other characters ??? " + sample_text());
  EXPECT_NE(failure_of(small_run(place, "a", {"resume=auto"})).find("another tokenizer"), std::string::npos);
  EXPECT_EQ(weights_of(config), before);
}

TEST(Trainer, RefusesBadDataBeforeItWritesAnything) {
  const TemporaryFolder place;
  const auto refuses = [&](const std::vector<std::string>& settings, const std::string& part, ErrorKind kind) {
    const Config config = small_run(place, "bad", settings);
    const std::string message = failure_of(config, kind);
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_FALSE(std::filesystem::exists(config.run));
  };
  write_text_file(place / "empty.txt", "");
  write_text_file(place / "short.txt", "abc");
  refuses({"data.path=" + (place / "none.txt")}, "none.txt", ErrorKind::io);
  refuses({"data.path=" + (place / "empty.txt")}, "is empty", ErrorKind::input);
  refuses({"data.path=" + (place / "short.txt")}, "a block of 16 needs 17", ErrorKind::input);
  refuses({"data={type: tokens, path: " + (place / "text.txt") + "}"}, "text.txt", ErrorKind::input);
  refuses({"model.vocabulary=3"}, "model.vocabulary is 3", ErrorKind::input);
  refuses({"data={type: addition}", "model.block=11"}, "set model.block=12", ErrorKind::input);
  refuses({"device=cuda:0"}, "cuda:0", ErrorKind::unsupported);
}

TEST(Trainer, ChoosesAPrecisionAndSaysWhichAndWhy) {
  const TemporaryFolder place;
  Recorder recorder;
  train(small_run(place, "a", {"strategy=zero2-auto"}), recorder);
  EXPECT_NE(recorder.messages.find("strategy auto: "), std::string::npos) << recorder.messages;
  EXPECT_NE(recorder.messages.find("bf16"), std::string::npos) << recorder.messages;
  EXPECT_NE(recorder.messages.find("zero2"), std::string::npos) << recorder.messages;
}

TEST(Trainer, CountsItsMemoryByTheFormula) {
  for (const bool narrow : {false, true}) {
    const TemporaryFolder place;
    Recorder recorder;
    const Config config =
        small_run(place, "a", {narrow ? "strategy=bf16" : "strategy=fp32", "batch.micro=6", "model.layers=1"});
    const TrainResult result = train(config, recorder);
    // Two units, the root and a block, each rounded up to 128 elements.
    std::int64_t root = 0, block = 0, tied = 0;
    const SafetensorsFile file(RunFolder(config.run).model());
    for (const SafetensorsEntry& entry : file.entries()) {
      (entry.name.starts_with("h.0.") ? block : root) += product(entry.shape);
      if (entry.name == "wte.weight") tied = 1;
    }
    ASSERT_EQ(tied, 1);
    const auto padded = [](std::int64_t count) { return static_cast<std::size_t>((count + 127) / 128 * 128); };
    const std::size_t all = padded(root) + padded(block), number = narrow ? 2 : 4;
    EXPECT_EQ(result.memory[Purpose::parameter].peak, all * number);
    // The tied weight gets two contributions, so the root's gradient is fp32.
    EXPECT_EQ(result.memory[Purpose::gradient].peak, padded(root) * 4 + padded(block) * number);
    EXPECT_EQ(result.memory[Purpose::optimizer].peak, all * (narrow ? 12 : 8));
  }
}

}  // namespace
}  // namespace keel
