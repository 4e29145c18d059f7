#pragma once
// What stands between a run and its trackers: a thread and a bounded queue for each, so that none holds up training or
// another tracker.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/context.h"
#include "keel/trainer/length.h"
#include "keel/trainer/tracker.h"

namespace keel {

class TrackerLine;

struct HostedTracker {
  std::string label;  // in messages, and of the file that keeps its id: letters, digits, _ and -; each another one
  std::unique_ptr<Tracker> tracker;
  std::string run_name = {};                                   // in place of the run's; empty: the run's
  std::vector<std::pair<std::string, std::string>> tags = {};  // beside the run's
  Length every = {};                     // between two records of training steps; none: it gets each of them
  std::vector<std::string> values = {};  // names that it gets, as patterns of a shell; empty: all
};

struct TrackerHostOptions {
  // Records that wait for a tracker. Those that come to a full queue are left out: the first is told, and at the end
  // their number. Texts and artifacts are few, and find room for kFurther more.
  std::size_t capacity = 1024;
  static constexpr std::size_t kFurther = 128;
  double flush_seconds = 5;  // from an event to the flush() behind it
  double end_seconds = 10;   // that trackers have for what waits and for end(), all together
};

// Functions are called by one thread at a time, which never waits for a tracker but in end().
class TrackerHost {
 public:
  // `tell` is called by the thread that calls the host. Ids of trackers are kept below run.folder, in
  // trackers/LABEL.id.
  TrackerHost(std::vector<HostedTracker> trackers, const RunDescription& run,
              std::function<void(LogLevel, std::string_view)> tell, TrackerHostOptions options = {});
  ~TrackerHost();  // ends a run that nobody has ended as failed
  TrackerHost(const TrackerHost&) = delete;
  TrackerHost& operator=(const TrackerHost&) = delete;

  static constexpr std::int64_t kForAll = -1;
  // `before`: of the record of a training step, the step of such a record before it. A tracker gets it where one of
  // the multiples of its `every` lies between the two.
  void log(std::int64_t step, std::span<const Logged> values, std::int64_t before = kForAll);
  void text(std::string_view name, std::string_view text);
  void artifact(std::string_view name, std::string_view path);
  // Hands out what waits and ends all trackers. One that is not done in time is left behind: its thread goes on, and
  // what it holds stays.
  void end(RunStatus status);

 private:
  void push(const std::function<void(Tracker&)>& delivery, std::size_t capacity);
  void tell_news();

  // A tracker, and what it gets of records.
  struct Line {
    Length every;
    std::vector<std::string> values;
    std::unique_ptr<TrackerLine> line;
  };

  std::vector<Line> lines_;
  std::function<void(LogLevel, std::string_view)> tell_;
  TrackerHostOptions options_;
  bool has_ended_ = false;
};

}  // namespace keel
