#pragma once
// Runs of the smallest model, and all that they tell.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "keel/trainer/callback.h"
#include "tests/error_of.h"
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
      if (!mine.empty()) throw Error(mine);
    });
  });
  EXPECT_EQ(error.empty(), first.error.empty()) << error;
  return first;
}

// Calls a function at the events of steps and evaluations.
class AtEvents : public Callback {
 public:
  using OnEvent = std::function<void(const std::string& event, LoopView& view)>;
  explicit AtEvents(OnEvent on_event) : on_event_(std::move(on_event)) {}
  std::string_view name() const override { return "at_events"; }
  void fit_begin(LoopView& v) override { on_event_("fit_begin", v); }
  void resumed(LoopView& v) override { on_event_("resumed", v); }
  void epoch_begin(LoopView& v) override { on_event_("epoch_begin", v); }
  void step_begin(LoopView& v) override { on_event_("step_begin", v); }
  void before_backward(LoopView& v) override { on_event_("before_backward", v); }
  void after_backward(LoopView& v) override { on_event_("after_backward", v); }
  void before_optimizer_step(LoopView& v) override { on_event_("before_optimizer_step", v); }
  void after_optimizer_step(LoopView& v) override { on_event_("after_optimizer_step", v); }
  void step_end(LoopView& v) override { on_event_("step_end", v); }
  void evaluation_begin(LoopView& v) override { on_event_("evaluation_begin", v); }
  void evaluation_end(LoopView& v, bool done) override { on_event_(done ? "evaluation_end" : "evaluation_failed", v); }
  void checkpoint_saved(LoopView& v, const std::string&, std::int64_t step) override {
    on_event_(concat("checkpoint_saved_", step), v);
  }
  void epoch_end(LoopView& v) override { on_event_("epoch_end", v); }
  void exception(LoopView& v, const std::exception& error) override { on_event_(concat("<", error.what(), ">"), v); }
  void interrupt(LoopView& v) override { on_event_("interrupt", v); }
  void fit_end(LoopView& v) override { on_event_("fit_end", v); }

 private:
  OnEvent on_event_;
};

inline Callbacks at_events(AtEvents::OnEvent on_event) { return {std::make_shared<AtEvents>(std::move(on_event))}; }

}  // namespace keel::testing
