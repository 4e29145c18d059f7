#pragma once
// The order in which an update reads units from files, piece by piece, and waits until they are written: rules without
// memory or files.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "keel/dist/comm/schedule.h"

namespace keel {

struct WalkStep {
  enum class Kind : unsigned char {
    fetch,   // begin to read the piece
    update,  // wait until it is there, update it, and begin to write it
    settle,  // wait until it is written; its memory goes
  };
  Kind kind;
  std::size_t unit;
  Span piece;    // of the elements of the unit that this rank updates
  bool is_last;  // of its unit
  bool is_first() const { return piece.begin == 0; }
  bool operator==(const WalkStep&) const = default;
};

struct UpdateWalk {
  std::vector<WalkStep> steps;
  std::int64_t peak = 0;  // bytes in memory at a time
};

// What a walk does with numbers that lie in files.
enum class PageUse : unsigned char { none, read, updated };

// An update is one walk, or two for an optimizer that transforms matrices: the first prepares them.
struct WalkUses {
  PageUse prepare = PageUse::none, update = PageUse::none;
};
// One of the two.
using WalkOf = PageUse WalkUses::*;

// What a walk reads of a unit from files.
struct WalkedUnit {
  std::int64_t elements = 0;  // that this rank updates
  // Bytes of an element in what comes and goes a piece at a time, and those among them that are written again.
  std::int64_t read = 0, written = 0;
  // Bytes that are there from the unit's first piece to its last, and those among them that are written again.
  std::int64_t whole_read = 0, whole_written = 0;

  // Adds a page: the bytes of an element in one that comes and goes a piece at a time, or of all of one that does not.
  void add(PageUse use, bool in_pieces, std::int64_t bytes);
  // What it has in memory at least, where pieces have so many elements.
  std::int64_t least(std::int64_t piece) const;
};

// The elements of a piece: a power of two, so that four pieces of each unit fit into a budget of bytes, within bounds.
// A piece of numbers of 16 bits is at least a sector of a file.
std::int64_t piece_of_walk(std::span<const WalkedUnit> units, std::int64_t budget);

// Of units in the order of updates. Pieces are read ahead while at most `budget` bytes are in memory, and one that is
// being written stays there until the room is needed. Two are written at a time, so that a file always has something to
// do. What is there whole comes with the first piece of its unit, and goes with the last. No unit may need more than
// the budget.
UpdateWalk walk_update(std::span<const WalkedUnit> units, std::int64_t piece, std::int64_t budget);

// Hands each step to fetch(), update() or settle() of whoever walks.
template <class Walker>
void run_walk(const UpdateWalk& walk, Walker& walker) {
  for (const WalkStep& step : walk.steps) {
    switch (step.kind) {
      case WalkStep::Kind::fetch: walker.fetch(step); break;
      case WalkStep::Kind::update: walker.update(step); break;
      case WalkStep::Kind::settle: walker.settle(step); break;
    }
  }
}

}  // namespace keel
