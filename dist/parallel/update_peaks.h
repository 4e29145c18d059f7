#pragma once
// What an update has in memory at a time while it walks over files: where the model computes, and beside a device in
// the processor's memory.

#include <cstdint>
#include <span>

#include "keel/dist/parallel/file_plan.h"

namespace keel {

// A unit as a walk goes over it: its pages, and what moves besides.
struct UpdatedUnit {
  UnitPages pages;
  std::int64_t gradient_width = 0;  // bytes of an element that comes to the processor from where it lies on the device
  std::int64_t shared = 0;          // bytes of buffers in which updated weights travel
};

TierPeaks peaks_of_walk(const UpdateWalk& walk, WalkOf of, std::span<const UpdatedUnit> units, bool on_device);

}  // namespace keel
