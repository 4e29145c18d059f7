#pragma once
// One step of a run as its ranks have recorded it: what they did when, and which memory they had.

#include <cstdint>
#include <string>
#include <vector>

#include "keel/runtime/json.h"

namespace keel::cli {

// Times are microseconds from the beginning of the trace.
struct RecordedSpan {
  int row = 0;  // TraceRow
  std::int64_t begin = 0, end = 0;
  std::string name;
  std::int64_t bytes = 0, sent = 0;
};

struct RecordedChange {
  std::int64_t time = 0;
  std::int64_t bytes = 0;
  int purpose = 0;
  std::int64_t block = 0;
};

struct RecordedRank {
  int rank = 0;
  std::vector<RecordedSpan> spans;
  std::vector<RecordedChange> changes;  // in order, up to the end of the step
};

struct StepRecord {
  std::int64_t step = 0;
  int began = 0;                    // ranks of the session that recorded it; some may have been lost before the step
  std::int64_t begin = 0, end = 0;  // from the first rank's to the last's
  std::vector<std::string> purposes;
  std::vector<RecordedRank> ranks;
};

// What log.trace or profile.steps has written into the run's folder. `step` 0: the first that was recorded. Throws an
// Error that says how to record a step where there is none, or which there are.
StepRecord read_step(const std::string& run, std::int64_t step = 0);

// Memory that was there at the fullest moment of the step.
struct AliveGroup {
  std::string purpose;
  std::string since;  // what the rank computed when it was asked for: "forward h.3", "update", "before the step"
  std::int64_t bytes = 0, blocks = 0;
};
struct StepPeak {
  std::int64_t time = 0, bytes = 0;
  std::vector<AliveGroup> alive;  // the largest first; their bytes are those of the peak
};
StepPeak peak_of(const StepRecord& record, const RecordedRank& rank);

// Bytes that a rank sent for collectives that it asked for in the step: those of units, and all.
struct StepSent {
  std::int64_t of_units = 0, all = 0;
};
StepSent sent_in(const StepRecord& record, const RecordedRank& rank);

Json to_json(const StepRecord& record);

}  // namespace keel::cli
