#pragma once
// The most memory that is there for a while in the passes of a step: whole parameters and gradients, what reductions
// write to, and what files give; and what is read from there and written.

#include <cstdint>
#include <span>

#include "keel/dist/plan/step_walk.h"

namespace keel {

// Bytes. `all` is the peak of Purpose::bucket: whole parameters, whole gradients that come and go, buffers of
// reductions, the second copy of what compression keeps, and what lies in files and was read or is not written yet.
// `host` is that of the processor's memory for a device: what is on its way between the device and files.
struct MemoryPeaks {
  std::int64_t gathered = 0, whole_gradients = 0, all = 0, host = 0;
  // From where they lie, and to there.
  std::int64_t values_read = 0, gradients_read = 0, gradients_written = 0;
};

MemoryPeaks memory_peaks(std::span<const UnitSplit> units, std::span<const StepEvent> events, bool on_device);

}  // namespace keel
