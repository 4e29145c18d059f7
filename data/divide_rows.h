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

// What a rank loads for such micro-batches, in order: their rows, and once, behind them, the row that stands in for
// those that are empty. It is the step's first one, which any rank can load.
std::vector<Rows> loaded_rows(std::vector<Rows> micro_batches);

}  // namespace keel
