#pragma once
// What a rank keeps in files, and what an update has in memory of it, as it follows from layout and options.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "keel/dist/parallel/unit_split.h"
#include "keel/dist/parallel/update_walk.h"
#include "keel/optim/optimizer.h"

namespace keel {

// A page of a unit. Whole gradients whose sums lie apart, frozen weights, and gradients that the processor uses where
// they lie, are in no walk.
struct PlannedPage {
  WalkUses uses;
  std::int64_t elements, width;
  bool in_pieces = false;  // a walk has but a piece of it in memory at a time
  bool in_file = true;     // and not in the processor's memory
  bool on_device = false;  // where a walk has it

  std::int64_t bytes() const { return elements * width; }
};

struct UnitPages {
  std::vector<PlannedPage> pages;
  std::int64_t elements = 0;  // that this rank updates
  WalkUses gradient = {};     // wherever it lies

  WalkedUnit walked(WalkOf walk) const;
};

// What files are planned for.
struct FilePlanSite {
  std::span<const FlatBuffer> layout;
  std::span<const UnitSplit> units;
  const PrecisionPolicy& policy;
  const Optimizer& optimizer;
  const GroupRule& groups;
  bool on_device;  // the model computes on a device
  bool offloads;   // for which the optimizer works in the processor's memory
};

UnitPages pages_of(std::size_t unit, const FilePlanSite& site);
// All that a rank keeps in files.
std::int64_t room_in_file(const FilePlanSite& site);
// The elements of the pieces in which an update reads and writes files, within a budget of bytes. An Error that names
// the first unit of which it needs more.
std::int64_t piece_of_update(const FilePlanSite& site, std::int64_t budget);

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
FilePlan plan_files(const FilePlanSite& site, std::int64_t budget, std::span<const Span> batches);

// A unit that a walk goes over: the pages that it uses, and what moves besides.
struct UpdatedUnit {
  UnitPages pages;
  std::int64_t gradient_width = 0;  // bytes of an element that comes to the processor from where it lies on the device
  std::int64_t shared = 0;          // bytes of buffers in which updated weights travel
};
// What a walk has in memory at a time, with pieces of so many elements, within a budget of bytes.
TierPeaks peaks_of_walk(WalkOf of, std::span<const UpdatedUnit> units, std::int64_t piece, std::int64_t budget,
                        bool on_device);

}  // namespace keel
