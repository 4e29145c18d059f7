#pragma once
// A collective of a step as numbers: who sends what follows from it, before anything moves.

#include <cstdint>

#include "keel/dist/comm/communicator.h"
#include "keel/dist/parallel/axes.h"

namespace keel {

// A collective that a rank asks for in a step, `times` times, of `count` elements of `width` bytes in all.
struct PlannedCollective {
  CollectiveKind kind;
  std::int64_t count = 0, width = 1, times = 1;
  bool of_parameters = false;  // otherwise of gradients
  Axis axis = Axis::shards;    // whose ranks it is among
  bool of_matrices = false;    // of neither parameters nor gradients
  // Of an all_to_all of matrices, whose parts differ in length: elements that the rank keeps.
  std::int64_t stays = 0;
};

}  // namespace keel
