#pragma once
// The trackers of a run: what the observer of its first rank is told goes to them, too.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "keel/trainer/config.h"
#include "keel/trainer/length.h"
#include "keel/trainer/progress.h"
#include "keel/trainer/run_folder.h"
#include "keel/trainer/tracker_host.h"

namespace keel {

class RunTrackers : public TrainObserver {
 public:
  // Passes everything on to `observer`, which outlives this.
  explicit RunTrackers(TrainObserver& observer) : observer_(observer) {}
  ~RunTrackers() override;

  // On the first rank, once the run's folder is there. `step`: of the checkpoint that the session goes on from, if any.
  // `log` hears of trackers that fail, until end().
  void begin(const Config& config, int ranks, std::optional<std::int64_t> step, TrainObserver& log);
  // Where they have begun.
  void artifact(std::string_view name, const std::string& path);
  void end(RunStatus status);

  void on_reading(std::uint64_t done, std::uint64_t all) override { observer_.on_reading(done, all); }
  void on_step(const StepReport& report) override { observer_.on_step(report); }
  void on_record(std::int64_t step, RecordKind kind, std::span<const Logged> values) override;
  void on_eval(const EvalReport& report) override { observer_.on_eval(report); }
  void on_checkpoint(const CheckpointReport& report) override;
  void on_message(LogLevel level, std::string_view message) override { observer_.on_message(level, message); }
  void on_begin() override { observer_.on_begin(); }
  void on_first() override { observer_.on_first(); }
  bool stop_requested() override { return observer_.stop_requested(); }
  bool save_requested() override { return observer_.save_requested(); }

 private:
  TrainObserver& observer_;
  TrainObserver* log_ = nullptr;
  std::optional<TrackerHost> host_;
  Length every_;            // between two records of training steps
  std::int64_t steps_ = 0;  // of the run
};

}  // namespace keel
