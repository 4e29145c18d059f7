#include "keel/trainer/trial_run.h"

namespace keel {

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

void TrialEnd::step_begin(LoopView& view) {
  if (view.state().step >= steps_) view.ask_stop("fast_dev_run");
}

}  // namespace keel
