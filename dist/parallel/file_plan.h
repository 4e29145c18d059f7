#pragma once
// What a rank keeps in files, and what an update has in memory of it, as it follows from layout and options.

#include <cstdint>
#include <span>
#include <vector>

#include "keel/dist/parallel/unit_split.h"
#include "keel/optim/optimizer.h"

namespace keel {

// Bytes of the pages of one unit. What an update reads and writes: weights, masters and states; what it only reads: the
// gradient; what is in none: whole gradients whose sums lie apart.
struct UnitPages {
  std::vector<std::int64_t> updated, read, others;
  std::int64_t hosted = 0;  // of weights that lie in the processor's memory

  std::int64_t of_update() const;  // that it has where it works
  std::int64_t stored() const;     // that it writes
  std::int64_t room() const;       // in the file
};

// `on_device`: the optimizer works in the processor's memory for a device, and has a copy of the weights there.
UnitPages pages_of(const UnitSplit& unit, const PrecisionPolicy& policy, const Optimizer& optimizer, bool on_device);

// All that a rank keeps in files.
std::int64_t room_in_file(std::span<const FlatBuffer> layout, std::span<const UnitSplit> units,
                          const PrecisionPolicy& policy, const Optimizer& optimizer, bool on_device);

// An Error that names the first unit of which an update needs more than the budget.
void check_budget(std::span<const FlatBuffer> layout, std::span<const UnitSplit> units, const PrecisionPolicy& policy,
                  const Optimizer& optimizer, bool on_device, std::int64_t budget);

}  // namespace keel
