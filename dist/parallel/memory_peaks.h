#pragma once
// The most memory that is there for a while in a step: whole parameters and gradients, and what reductions write to.

#include <cstdint>
#include <span>

#include "keel/dist/parallel/step_walk.h"

namespace keel {

// Bytes. `all` is the peak of Purpose::bucket: whole parameters, whole gradients that come and go, buffers of
// reductions, and the second copy of what compression keeps.
struct MemoryPeaks {
  std::int64_t gathered = 0, whole_gradients = 0, all = 0;
};

MemoryPeaks memory_peaks(std::span<const UnitSplit> units, std::span<const StepEvent> events);

}  // namespace keel
