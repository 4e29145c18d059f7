#pragma once
// What a rank keeps in files, and what an update has in memory of it, as it follows from layout and options.

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
  bool is_prepared = false;   // the rank has matrices of it
  WalkUses gradient = {};     // wherever it lies

  WalkedUnit walked(WalkOf walk) const;
  std::int64_t read() const;     // by an update
  std::int64_t written() const;  // by an update
  std::int64_t room() const;     // in the file
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
  TierPeaks operator|(const TierPeaks& other) const {
    return {here > other.here ? here : other.here, host > other.host ? host : other.host};
  }
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

}  // namespace keel
