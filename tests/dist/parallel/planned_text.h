#pragma once
// Planned collectives as text.

#include <string>

#include "keel/dist/parallel/planned_collective.h"
#include "keel/runtime/error.h"

namespace keel::testing {

// "2 x all_gather of 4160 x 4 among shards, of parameters".
inline std::string text_of(const PlannedCollective& each) {
  return concat(each.times, " x ", name_of(each.kind), " of ", each.count, " x ", each.width, " among ",
                name_of(each.axis), each.of_parameters ? ", of parameters" : "",
                each.of_matrices ? ", of matrices" : "", each.stays == 0 ? "" : concat(", ", each.stays, " stay"));
}

}  // namespace keel::testing
