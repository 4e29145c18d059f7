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
  WalkedUnit walked_on_device(WalkOf walk) const;  // what of it is in a device's memory
  std::int64_t read() const;                       // by an update
  std::int64_t written() const;                    // by an update
  std::int64_t room() const;                       // in the file
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

// Bytes that lie in files, of which an update reads and writes, and has in memory at a time; and what comes from the
// processor to the device and goes back.
struct FilePlan {
  std::int64_t room = 0, read = 0, written = 0, moved = 0;
  std::vector<std::int64_t> walks = {};           // by batch, the most in memory
  std::vector<std::int64_t> device_walks = {};    // and of it in a device's memory
  std::vector<std::int64_t> at_a_time = {};       // by unit, elements that an update works on
  std::vector<std::int64_t> gradient_reads = {};  // by unit, in an update
};
// `batches`: units that are updated before the next ones.
FilePlan plan_files(const FilePlanSite& site, std::int64_t budget, std::span<const Span> batches);

}  // namespace keel
