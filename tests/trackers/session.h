#pragma once
// Trackers of keel's list, run by a host as a session of a run would.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "keel/trainer/tracker_host.h"

namespace keel::testing {

using Given = std::vector<std::pair<std::string, std::string>>;

inline const TrackerEntry& tracker_entry(std::string_view type) {
  for (const TrackerEntry& entry : trackers())
    if (entry.name == type) return entry;
  throw Error(concat("there is no tracker ", type));
}

// With these settings, as texts, in place of some defaults.
inline std::unique_ptr<Tracker> make_tracker(std::string_view type, const Given& given = {}) {
  const TrackerEntry& entry = tracker_entry(type);
  return entry.make(Settings(entry.rows, given));
}

// A session of a run with one tracker.
class TrackedSession {
 public:
  TrackedSession(std::string_view type, const Given& given, const RunDescription& run,
                 TrackerHostOptions options = {}) {
    std::vector<HostedTracker> one;
    one.push_back({std::string(type), make_tracker(type, given)});
    host_ = std::make_unique<TrackerHost>(
        std::move(one), run, [this](LogLevel, std::string_view text) { told_.emplace_back(text); }, options);
  }
  TrackerHost* operator->() { return host_.get(); }
  void log(std::int64_t step, std::vector<Logged> values) { host_->log(step, values); }
  // What was told, at the end.
  std::vector<std::string> end(RunStatus status = RunStatus::finished) {
    host_->end(status);
    return told_;
  }

 private:
  std::vector<std::string> told_;
  std::unique_ptr<TrackerHost> host_;
};

inline RunDescription description_in(const std::string& folder) {
  RunDescription run{.name = "try", .folder = folder, .config = "seed: 1\nsteps: 20\n"};
  run.settings = {{"seed", "1"}, {"optimizer.lr", "3e-4"}, {"optimizer.type", "AdamW"}, {"cuda_graph", "false"}};
  run.tags = {{"keel.version", "0.1.0"}};
  return run;
}
inline RunDescription resumed_in(const std::string& folder, std::int64_t step) {
  RunDescription run = description_in(folder);
  run.is_resumed = true;
  run.step = step;
  return run;
}

}  // namespace keel::testing
