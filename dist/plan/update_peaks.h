#pragma once
// What an update reads of files and writes there, and what it has in memory at a time: where the model computes, and
// beside a device in the processor's memory.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "keel/dist/parallel/file_pages.h"

namespace keel {

// The most bytes at a time where the model computes, and beside a device in the processor's memory.
struct TierPeaks {
  std::int64_t here = 0, host = 0;

  TierPeaks operator+(const TierPeaks& more) const { return {here + more.here, host + more.host}; }
  // Of what is there at other times.
  TierPeaks operator|(const TierPeaks& other) const { return {std::max(here, other.here), std::max(host, other.host)}; }
};

// Bytes that lie in files, of which an update reads and writes, and has in memory at a time; and what comes from the
// processor to the device and goes back.
struct FilePlan {
  std::int64_t room = 0, read = 0, written = 0, moved = 0;
  std::vector<TierPeaks> walks = {};              // by batch, without matrices
  std::vector<std::int64_t> gradient_reads = {};  // by unit, in an update
};
// `batches`: units that are updated before the next ones.
FilePlan plan_files(const FileSite& site, std::int64_t budget, std::span<const Span> batches);

}  // namespace keel
