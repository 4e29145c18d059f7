#pragma once
// What the first rank writes into a run's folder beside checkpoints, and the lock that keeps other sessions out.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "keel/runtime/file_lock.h"
#include "keel/trainer/metrics.h"
#include "keel/trainer/progress.h"
#include "keel/trainer/run_folder.h"

namespace keel {

class RunFiles {
 public:
  // Both must outlive this.
  RunFiles(const RunFolder& folder, TrainObserver& observer) : folder_(folder), observer_(observer) {}

  // Where the folder is there: locks it until the end, and gives checkpoints of a killed session their names again. A
  // folder that another session has is an Error that names it; a file system without locks is a warning.
  void take();
  // On a rank that may become the first: tell() keeps the records of the two newest steps, which are all that the first
  // one may not have written when it is lost.
  void keep_records() { keeps_records_ = true; }
  // Locks the folder of a run that goes on without the rank that had it, whose lock may be there for a moment longer.
  void take_over();
  // Makes the folder where there is none, takes it, removes what killed sessions left, and writes what a run begins
  // with. `step`: of the checkpoint that it goes on from, if any. A run that came there after take() is an Error.
  // `files`: of the task (keel/tasks/task.h, Data); where an earlier session was there, it leaves none that are empty.
  void begin(std::string config, std::vector<std::pair<std::string, std::string>> files,
             std::optional<std::int64_t> step);
  bool has_begun() const { return metrics_.has_value(); }
  // Writes the records that were kept, as far as the file does not have them.
  void write_kept();
  bool wants_records() const { return has_begun() || keeps_records_; }
  // Writes a record where they have begun, or keeps it.
  void tell(std::int64_t step, std::span<const Logged> metrics, RecordKind kind = RecordKind::other);
  // A line of metrics, which the observer is told.
  void write(std::int64_t step, std::span<const Logged> metrics, RecordKind kind = RecordKind::other);
  void write(std::int64_t step, std::initializer_list<Logged> metrics) {
    write(step, std::span(metrics.begin(), metrics.size()));
  }
  // Makes the folder again where somebody has removed it since, with metrics from `step` on. Returns whether that has
  // happened since the last call.
  bool keep(std::int64_t step);

 private:
  struct Kept {
    std::int64_t step = 0;
    std::vector<Logged> values;
    RecordKind kind = RecordKind::other;
  };

  void keep_record(Kept record);
  void write_description() const;
  void make_again(std::int64_t step);

  const RunFolder& folder_;
  TrainObserver& observer_;
  std::optional<FileLock> lock_;
  std::string config_;
  std::vector<std::pair<std::string, std::string>> task_files_;  // by name and text
  std::optional<MetricsWriter> metrics_;
  bool was_made_again_ = false, keeps_records_ = false;
  std::vector<Kept> kept_;
};

}  // namespace keel
