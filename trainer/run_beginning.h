#pragma once
// What a run begins to write, by its first rank, and by the one that takes its place where groups go on without others.

#include <cstdint>
#include <optional>

#include "keel/tasks/task.h"
#include "keel/trainer/checkpoint.h"
#include "keel/trainer/config.h"
#include "keel/trainer/lost_groups.h"
#include "keel/trainer/rank_log.h"
#include "keel/trainer/run_files.h"
#include "keel/trainer/run_folder.h"
#include "keel/trainer/run_report.h"
#include "keel/trainer/run_trackers.h"

namespace keel {

class RunBeginning {
 public:
  struct Site {
    const Config& config;
    const Data& data;
    const RunFolder& folder;
    Communicator& ranks;  // that are left
    int rank = 0;         // as the run began
    RankLog& observer;
    RunFiles& files;
    RunTrackers& trackers;
    RunReport& report;
    const TrainState& state;
  };
  // All outlive this.
  explicit RunBeginning(const Site& site) : site_(site) {}

  // Every rank calls it. `step`: of the checkpoint that the session goes on from, if any.
  void write(std::optional<std::int64_t> step);
  // On the ranks that are left of a group's loss, which is seen in a step: tells it. Where the first one has gone,
  // another takes over what that one writes.
  void go_on_without(const LostGroup& lost, std::int64_t step);

 private:
  bool is_first() const { return site_.ranks.rank() == 0; }
  void begin_files(std::optional<std::int64_t> step);
  void begin_trackers(std::optional<std::int64_t> step);
  void take_over();

  Site site_;
};

}  // namespace keel
