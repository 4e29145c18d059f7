#include "keel/trainer/trial_run.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>

#include "keel/dist/comm/agreement.h"
#include "keel/runtime/error.h"

namespace keel {
namespace {

Config trial_of(const Config& config) {
  Config trial = config;
  while (trial.run.size() > 1 && trial.run.ends_with('/')) trial.run.pop_back();
  trial.run += ".fast_dev_run";
  trial.resume = "never";
  trial.eval.batches = config.fast_dev_run;
  trial.checkpoint.memory_every = {};
  trial.trackers.clear();
  return trial;
}

// Ends the run after so many steps; it evaluates and saves then.
class TrialEnd : public Callback {
 public:
  explicit TrialEnd(std::int64_t steps) : steps_(steps) {}
  std::string_view name() const override { return "trial_end"; }
  void step_begin(LoopView& view) override {
    if (view.state().step >= steps_) view.ask_stop("fast_dev_run");
  }

 private:
  std::int64_t steps_;
};

}  // namespace

TrainResult try_out(const Config& config, TrainObserver& observer, Communicator& ranks, Callbacks callbacks,
                    const std::function<TrainResult(const Config& config, const Callbacks& callbacks)>& run) {
  const Config trial = trial_of(config);
  const bool is_first = ranks.rank() == 0;
  const auto remove_folder = [&] {
    std::error_code ignored;  // what cannot be removed harms nobody
    if (is_first) std::filesystem::remove_all(trial.run, ignored);
  };
  together(ranks, remove_folder);  // what a killed trial has left
  callbacks.push_back(std::make_shared<TrialEnd>(config.fast_dev_run));
  TrainResult result;
  try {
    result = run(trial, callbacks);
  } catch (...) {
    remove_folder();
    throw;
  }
  together(ranks, remove_folder);
  if (is_first)
    observer.on_message(LogLevel::info, concat("fast_dev_run: ", result.step, result.step == 1 ? " step" : " steps",
                                               ", an evaluation and a checkpoint went well; nothing of them stays"));
  return result;
}

}  // namespace keel
