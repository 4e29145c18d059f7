#pragma once
// A few steps of everything that a run does, of which nothing stays (fast_dev_run).

#include <cstdint>

#include "keel/trainer/callback.h"
#include "keel/trainer/config.h"

namespace keel {

// The same run from its beginning, in a folder beside the run's: without trackers, and evaluated in as many batches of
// each set as fast_dev_run has steps.
Config trial_of(const Config& config);

// Ends the run after so many steps; it evaluates and saves then.
class TrialEnd : public Callback {
 public:
  explicit TrialEnd(std::int64_t steps) : steps_(steps) {}
  std::string_view name() const override { return "trial_end"; }
  void step_begin(LoopView& view) override;

 private:
  std::int64_t steps_;
};

}  // namespace keel
