#pragma once
// How the rows of a step are shared out among ranks and micro-batches.

#include <cstdint>
#include <vector>

#include "keel/data/batch.h"

namespace keel {

// The micro-batches of one rank: contiguous rows, in order, `micro` at most. The rows are shared out as evenly as they
// go, among ranks and then among micro-batches. Every rank has as many micro-batches; the last ones of some may be
// empty: all of a rank's, where a step has fewer rows than there are ranks.
std::vector<Rows> divide_rows(std::int64_t rows, std::int64_t micro, std::int64_t rank = 0, std::int64_t world = 1);
// Those of a rank that computes so many of the `world` in turn, all of one and then all of the next.
std::vector<Rows> divide_rows_in_turn(std::int64_t rows, std::int64_t micro, std::int64_t rank, std::int64_t world,
                                      std::int64_t of_each);

// What a rank loads for such micro-batches, in order: their rows, and once, in the place of the first that is empty,
// the row that stands in for those. It is the step's first one, which any rank can load.
std::vector<Rows> loaded_rows(std::vector<Rows> micro_batches);

}  // namespace keel
