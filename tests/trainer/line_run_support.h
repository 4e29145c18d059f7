#pragma once
// Runs of the smallest model, and all that they tell.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/error_of.h"
#include "tests/trainer/everywhere.h"
#include "tests/trainer/line_task.h"

namespace keel::testing {

// Keeps all that it is told, a line each.
class Told : public TrainObserver {
 public:
  void on_step(const StepReport& report) override { steps.push_back(report); }
  void on_eval(const EvalReport& report) override { words += concat("evaluation of ", report.step, '\n'); }
  void on_checkpoint(const CheckpointReport& report) override {
    words += concat("checkpoint of ", report.step, " in ", report.path, '\n');
  }
  void on_message(LogLevel, std::string_view message) override { words += concat(message, '\n'); }
  bool stop_requested() override { return !steps.empty() && steps.back().step >= stop_after; }
  bool save_requested() override { return !steps.empty() && steps.back().step == save_after; }

  std::vector<StepReport> steps;
  std::string words;
  std::int64_t stop_after = INT64_MAX, save_after = -1;
};

struct ShownRun {
  TrainResult result;
  std::string error, words;  // words: of the first rank
  std::vector<StepReport> steps;
};

using Prepare = std::function<Callbacks(int rank, Told& told)>;

inline ShownRun shown_run(int n, const Config& config, const Prepare& prepare = {}) {
  ShownRun first;
  const std::string error = error_of([&] {
    run_ranks(n, [&](Communicator& ranks) {
      Told told;
      Callbacks callbacks = prepare ? prepare(ranks.rank(), told) : Callbacks();
      TrainResult result;
      const std::string mine = error_of([&] { result = train(config, told, ranks, callbacks); });
      if (ranks.rank() == 0) first = {result, mine, told.words, told.steps};
      if (!mine.empty()) throw Error(MessageLines{mine});
    });
  });
  EXPECT_EQ(error.empty(), first.error.empty()) << error;
  return first;
}

// Everywhere, with epochs, steps of checkpoints and reasons of exceptions.
class AtEvents : public Everywhere {
 public:
  explicit AtEvents(OnEvent on_event) : Everywhere(std::move(on_event), "at_events") {}
  void epoch_begin(LoopView& v) override { on_event_("epoch_begin", v); }
  void checkpoint_saved(LoopView& v, const std::string&, std::int64_t step) override {
    on_event_(concat("checkpoint_saved_", step), v);
  }
  void epoch_end(LoopView& v) override { on_event_("epoch_end", v); }
  void exception(LoopView& v, const std::exception& error) override { on_event_(concat("<", error.what(), ">"), v); }
};

inline Callbacks at_events(AtEvents::OnEvent on_event) { return {std::make_shared<AtEvents>(std::move(on_event))}; }

// Runs of one rank, and of two.
class LineRunsByRanks : public ::testing::TestWithParam<int> {
 protected:
  const int n = GetParam();  // ranks
  const TemporaryFolder place;
};

}  // namespace keel::testing
