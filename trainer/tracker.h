#pragma once
// Trackers: where the numbers of a run go beside its folder, such as TensorBoard, MLflow or a program of one's own.
//
// A tracker belongs to the first rank, has a thread of its own, and gets records by a bounded queue
// (keel/trainer/tracker_host.h): a slow disk or server never holds up training.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/config/settings.h"
#include "keel/trainer/logged.h"

namespace keel {

enum class RunStatus : unsigned char {
  finished,  // steps, time or a callback ended it
  failed,    // an error did
  killed,    // a signal did
};
std::string_view name_of(RunStatus status);  // "finished"

struct RunDescription {
  std::string name;    // of the run: its folder's last part, unless the tracker's `name` says otherwise
  std::string folder;  // of the run, as a full path
  std::string config;  // resolved, as YAML
  std::vector<std::pair<std::string, std::string>> settings = {};  // the same, "optimizer.lr" and "3e-4", by keys
  std::vector<std::pair<std::string, std::string>> tags = {};      // keel's version, ranks, device, and the user's
  // The session goes on after this step: records of later ones, which the session before wrote, do not count.
  std::int64_t step = 0;
  bool is_resumed = false;
  std::string resumed_id = {};  // what id() was in the session before
  // Tells the run what is not as it should be, where the tracker goes on all the same. May be called as long as the
  // tracker lives, by its thread.
  std::function<void(std::string_view)> warn = [](std::string_view) {};
};

// Every function is called by the tracker's thread, in the order of events. What one throws is told once as a warning;
// then the tracker gets no more calls but end(), and training goes on.
class Tracker {
 public:
  virtual ~Tracker() = default;
  // Opens it. May take as long as it likes.
  virtual void begin(const RunDescription& run) = 0;
  // What finds the same run of the tracker again in a later session, asked for after begin(); kept in the run's folder.
  // Empty: it needs nothing.
  virtual std::string id() const { return {}; }
  // Steps do not decrease; one step may come several times, with other names (training, then evaluation). `seconds`:
  // since 1970.
  virtual void log(std::int64_t step, double seconds, std::span<const Logged> values) = 0;
  virtual void text(std::string_view /*name*/, std::string_view /*text*/) {}
  // A file or folder: "config", "model" or "checkpoint". An old checkpoint may be gone by now.
  virtual void artifact(std::string_view /*name*/, const std::string& /*path*/) {}
  // Everything so far is to be seen by others. Called some seconds apart, and before end().
  virtual void flush() {}
  // The last call, also where another one has thrown; within seconds of the run's end, else the tracker is left behind,
  // with a message.
  virtual void end(RunStatus status) = 0;
};

// A kind of tracker, as `tracker: {type: NAME}` names it. Its keys have no section: "uri".
struct TrackerEntry {
  std::string_view name, summary;
  std::vector<KeyRow> rows = {};
  // Touches nothing outside. An Error says what is wrong with the settings.
  std::unique_ptr<Tracker> (*make)(const Settings& settings) = nullptr;
};
// keel's list of them.
std::span<const TrackerEntry> trackers();

}  // namespace keel
