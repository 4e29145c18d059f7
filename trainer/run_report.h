#pragma once
// What a run tells while it goes on: records of metrics.jsonl, and reports to its observer.

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "keel/trainer/config.h"
#include "keel/trainer/memory_growth.h"
#include "keel/trainer/run_files.h"
#include "keel/trainer/run_stacks.h"
#include "keel/trainer/run_time.h"
#include "keel/trainer/step_clock.h"
#include "keel/trainer/training_step.h"

namespace keel {

class RunReport {
 public:
  struct Site {
    const Config& config;
    std::string unit;  // of speed, see Task::unit()
    RunStacks& stacks;
    Communicator& ranks;
    TrainObserver& observer;
    RunFiles& files;  // which get the records
    const RunTime& time;
    // Of the first model that is trained: factors of groups of parameters on its learning rate, by name.
    std::vector<NamedNumber> rates = {};
  };
  // All outlive this. `step`: where the session begins.
  RunReport(const Site& site, std::int64_t step)
      : site_(site), growth_(site.config.log.memory_growth.last_step()), measured_step_(step) {}

  // The session begins to train; `waited_ms` is all that this rank has waited for others so far.
  void begin(double waited_ms);
  // Goes on after something that is part of no step.
  void go_on(double waited_ms);
  // A step whose outcome is there; `units` are all that the run has trained on. Values of `logged` join the record,
  // where one is due; returns whether it was.
  bool tell_step(const StepOutcome& outcome, double waited_ms, std::int64_t units,
                 const std::vector<std::pair<std::string, double>>& logged);
  void tell_evaluation(const EvalReport& report);
  // Values that belong to no step's record.
  void tell_values(std::int64_t step, std::span<const Logged> values);
  // The peaks of memory; returns that of the process, in bytes.
  std::int64_t tell_memory(std::int64_t step);
  // Of training in this session.
  double seconds() const;

 private:
  void write_step(const StepOutcome& outcome, const StepReport& report, double now, std::int64_t units,
                  const std::vector<std::pair<std::string, double>>& logged);

  Site site_;
  StepClock clock_;
  MemoryGrowth growth_;
  double began_ = 0;  // seconds
  std::int64_t measured_bytes_ = 0, measured_step_;
};

}  // namespace keel
