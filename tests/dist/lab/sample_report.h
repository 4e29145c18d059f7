#pragma once
// A report as a run would leave it, with a number of its own in every field.

#include "keel/dist/lab/exercise.h"
#include "keel/dist/lab/report.h"

namespace keel::lab {

inline Timing sample_timing(double us, std::int64_t ranks) {
  Timing timing;
  timing.calls = 20;
  timing.time_us = us;
  timing.min_us = us * 0.9;
  timing.max_us = us * 1.1;
  timing.p25_us = us * 0.95;
  timing.p50_us = us / 3;  // no short decimal: what is read must be the same to the bit
  timing.p75_us = us * 1.05;
  timing.p95_us = us * 2;
  timing.algbw = 1 / us;
  timing.busbw = 2 / us;
  timing.wrong = 0;
  timing.skew_us = 0.1;
  timing.straggler = ranks - 1;
  timing.straggler_share = 0.625;
  timing.first_us = us * 10;
  timing.computing_us = us;
  timing.together_us = us * 1.25;
  timing.overlap = 75;
  return timing;
}

inline Report sample_report() {
  Report report;
  report.started = "2026-01-02T03:04:05Z";
  report.complete = true;
  report.software = {{"keel", "0.1.0"}, {"mpi", "some \"MPI\" of\nour own"}};
  report.machine = {{"rank 0", "here"}};
  report.options = {{"begin", "8"}};
  report.environment = {{"OMP_NUM_THREADS", "1"}};
  report.nodes = {0, 0, 1};
  report.skipped = {"ring: none"};
  double us = 1;
  for (const Exercise& exercise : exercises())
    for (const std::int64_t bytes : {12, 12'000, 12'000'000}) {
      Record record;
      record.collective = exercise.name;
      record.algorithm = bytes == 12 ? "backend" : "ring";
      record.dtype = "f32";
      record.bytes = bytes;
      record.count = bytes / 4;
      record.ranks = 3;
      us *= 1.7;
      if (exercise.out_of_place) record.out_of_place = sample_timing(us, 3);
      if (exercise.in_place) record.in_place = sample_timing(us * 1.3, 3);
      if (exercise.adds()) record.op = "sum";
      if (exercise.has_root()) record.root = 0;
      if (record.in_place) record.in_place->wrong.reset();
      if (record.in_place) record.in_place->overlap.reset();
      if (record.algorithm == "ring") {
        record.wire_inside_bytes = bytes;
        record.wire_between_bytes = 2 * bytes;
        record.wire_total_bytes = 6 * bytes;
      }
      report.records.push_back(record);
    }
  return report;
}

}  // namespace keel::lab
