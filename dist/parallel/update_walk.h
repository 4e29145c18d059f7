#pragma once
// The order in which an update reads units from files, and waits until they are written: rules without memory or files.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

struct WalkStep {
  enum class Kind : unsigned char {
    fetch,   // begin to read the unit
    update,  // wait until it is there, update it, and begin to write it
    settle,  // wait until it is written; its memory goes
  };
  Kind kind;
  std::size_t unit;
  bool operator==(const WalkStep&) const = default;
};

struct UpdateWalk {
  std::vector<WalkStep> steps;
  std::int64_t peak = 0;  // bytes in memory at a time
};

// Bytes that an update of a unit reads, and those among them that are in memory until they are written.
struct WalkedUnit {
  std::int64_t read = 0, written = 0;
};

// Of units in the order of updates. They are read ahead while at most `budget` bytes are in memory, and
// one that is being written stays there until the room is needed. Two are written at a time, so that a file always has
// something to do. No unit may be larger than the budget.
UpdateWalk walk_update(std::span<const WalkedUnit> units, std::int64_t budget);

}  // namespace keel
