#pragma once
// The pages that a rank keeps in files, as they follow from layout and options.

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

// Both walks, of which an optimizer that transforms no matrices has the first alone.
inline constexpr WalkOf kWalks[] = {&WalkUses::update, &WalkUses::prepare};

struct UnitPages {
  std::vector<PlannedPage> pages;
  std::int64_t elements = 0;  // that this rank updates
  WalkUses gradient = {};     // wherever it lies

  WalkedUnit walked(WalkOf walk) const;
};

// What a rank's pages follow from.
struct FileSite {
  std::span<const FlatBuffer> layout;
  std::span<const UnitSplit> units;
  const PrecisionPolicy& policy;
  const Optimizer& optimizer;
  const GroupRule& groups;
  bool on_device;  // the model computes on a device
  bool offloads;   // for which the optimizer works in the processor's memory
};

UnitPages pages_of(std::size_t unit, const FileSite& site);
// All that a rank keeps in files.
std::int64_t room_in_file(const FileSite& site);
// The elements of the pieces in which an update reads and writes files, within a budget of bytes. An Error that names
// the first unit of which it needs more.
std::int64_t piece_of_update(const FileSite& site, std::int64_t budget);

}  // namespace keel
