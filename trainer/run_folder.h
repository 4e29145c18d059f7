#pragma once
// The folder of a run: which file is what, and which checkpoints there are.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "keel/runtime/error.h"

namespace keel {

class RunFolder {
 public:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  // The last part of the path: "mine" of "runs/mine/".
  std::string name() const;
  std::string config() const { return path_ + "/config.yaml"; }
  std::string metrics() const { return path_ + "/metrics.jsonl"; }
  // A small file of the task's, such as its tokenizer.
  std::string file(const std::string& name) const { return concat(path_, '/', name); }
  // The weights of the newest checkpoint, in fp32.
  std::string model() const { return path_ + "/model.safetensors"; }
  // Of the model of this name, where a run trains several; of the only one without.
  std::string model(const std::string& name) const {
    return name.empty() ? model() : concat(path_, "/model.", name, ".safetensors");
  }
  std::string checkpoint(std::int64_t step) const;
  // Holds the name of the newest checkpoint, for other programs.
  std::string latest() const { return path_ + "/checkpoints/latest"; }
  // Holds the name of the best checkpoint (checkpoint.best).
  std::string best() const { return path_ + "/checkpoints/best"; }
  // Likewise by a further rule of it.
  std::string best_by(std::string_view rule) const;
  // The checkpoints that best() and best_by() name, and the rules; empty for the first one.
  std::vector<std::pair<std::string, std::string>> all_best() const;
  // The checkpoint's name in a file such as latest(); empty: there is no such file, or no such name in it.
  static std::string named_by(const std::string& path);
  std::string checkpoint_called(const std::string& name) const { return concat(path_, "/checkpoints/", name); }
  // Holds the number of the session whose copies in the memory of hosts count (keel/trainer/run_memory.h).
  std::string memory_session() const { return path_ + "/checkpoints/in-memory"; }
  // The step that a checkpoint's path names; nothing where it has a name of its own.
  static std::optional<std::int64_t> step_named(const std::string& checkpoint);
  // What every rank computed and sent when: the format of Chrome's traces.
  std::string trace() const { return path_ + "/trace.json"; }
  // Of one rank alone.
  std::string trace_of(int rank) const { return concat(path_, "/trace.", rank, ".json"); }
  // What memory each rank had when, in the same window (keel/trainer/memory_trace.h).
  std::string memory() const { return path_ + "/memory.json"; }
  std::string memory_of(int rank) const { return concat(path_, "/memory.", rank, ".json"); }
  // What keeps other sessions out while one writes here.
  std::string lock() const { return path_ + "/lock"; }
  // What a rank had to say.
  std::string log(int rank) const { return concat(path_, "/logs/rank-", rank, ".log"); }

  // The folder of the run that a path means, which is that folder or its `checkpoints`; empty: it means none.
  static std::string meant_by(const std::string& path);
  // The folder of the run that a checkpoint lies in; empty: it lies in none.
  static std::string around(const std::string& checkpoint);
  // Whether there is anything that a run has learnt or recorded: a record, a checkpoint, weights. What a session wrote
  // that failed before its first record is nothing to go on with.
  bool holds_run() const;
  // Steps of the checkpoints, ascending. Folders that are still being written do not count.
  std::vector<std::int64_t> checkpoint_steps() const;

  // Checkpoints under another name than their own: those that were set aside for another one of their step, which a
  // killed session did not finish.
  std::vector<std::string> set_aside() const;

  // For a session that has the folder to itself. Every such one gets its name again.
  void restore_checkpoints() const;
  // Removes what killed sessions left half-written.
  void remove_strays() const;

 private:
  std::string path_;
};

}  // namespace keel
