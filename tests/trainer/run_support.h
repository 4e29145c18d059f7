#pragma once
// What tests of training runs share: a small run, and an observer that keeps what it is told.

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <memory>

#include "keel/dist/checkpoint/extent_reader.h"
#include "keel/dist/comm/run_ranks.h"
#include "keel/runtime/file.h"
#include "keel/trainer/checkpoint.h"
#include "keel/trainer/run_folder.h"
#include "keel/trainer/trainer.h"
#include "tests/temporary_folder.h"

namespace keel::testing {

// Stops after a step, and keeps what it is told.
class Recorder : public TrainObserver {
 public:
  explicit Recorder(std::int64_t stop_after = std::numeric_limits<std::int64_t>::max()) : stop_after_(stop_after) {}
  void on_step(const StepReport& report) override {
    EXPECT_TRUE(last_step_ == 0 || report.step == last_step_ + 1) << "each step, in order";
    last_step_ = report.step;
    losses.push_back(report.loss);
  }
  void on_eval(const EvalReport& report) override {
    validation = report.find(kValidationLoss).value_or(std::numeric_limits<double>::quiet_NaN());
  }
  void on_checkpoint(const CheckpointReport& report) override { checkpoints.push_back(report.step); }
  void on_message(LogLevel, std::string_view message) override { messages += concat(message, '\n'); }
  bool stop_requested() override { return last_step_ >= stop_after_; }

  std::vector<double> losses;
  double validation = 0;  // loss
  std::vector<std::int64_t> checkpoints;
  std::string messages;

 private:
  std::int64_t stop_after_, last_step_ = 0;
};

inline std::string sample_text() {
  std::string text;
  for (int i = 0; i < 300; ++i) text += concat("line ", i * i % 97, " of ", i, '\n');
  return text;
}

// A run of a few steps on a small text, in folder `run` of `place`.
inline Config small_run(const std::string& place, const std::string& run, std::vector<std::string> more = {}) {
  const std::string text = place + "/text.txt";
  if (!std::filesystem::exists(text)) write_text_file(text, sample_text());
  std::vector<std::string> settings = {"run=" + place + "/" + run, "data.path=" + text};
  settings.insert(settings.end(), more.begin(), more.end());
  return parse_config(R"(
steps: 12
model: {layers: 2, heads: 2, width: 16, block: 16, dropout: 0.1}
data: {type: text, tokenizer: character}
batch: {global: 6, micro: 3}
optimizer: {lr: 1e-2}
scheduler: {warmup: 3, min_lr: 1e-3}
eval: {every: 4}
checkpoint: {every: 5, keep: 2}
log: {every: 1}
threads: 2
)",
                      "small.yaml", settings);
}

inline Config small_run(const TemporaryFolder& place, const std::string& run, std::vector<std::string> more = {}) {
  return small_run(place.path(), run, std::move(more));
}

// The run by n ranks; what each was told.
inline std::vector<std::unique_ptr<Recorder>> train_by(int n, const Config& config,
                                                       std::int64_t stop_after = INT64_MAX) {
  std::vector<std::unique_ptr<Recorder>> recorders;
  // One rank alone hears of the signal.
  for (int r = 0; r < n; ++r) recorders.push_back(std::make_unique<Recorder>(r == n - 1 ? stop_after : INT64_MAX));
  run_ranks(n, [&](Communicator& ranks) { train(config, *recorders[static_cast<std::size_t>(ranks.rank())], ranks); });
  return recorders;
}

// A checkpoint all of whose bytes are as they were written; anything else is an Error.
inline TrainState read_whole(const std::string& path) {
  const Checkpoint checkpoint = open_checkpoint(path);
  ExtentReader(path, checkpoint.manifest).verify();
  return checkpoint.state;
}

inline std::string weights_of(const Config& config) { return read_text_file(RunFolder(config.run).model()); }

}  // namespace keel::testing
