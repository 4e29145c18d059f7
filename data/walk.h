#pragma once
// All examples of a data set, read by several threads.

#include <cstdint>
#include <functional>
#include <vector>

#include "keel/data/dataset.h"

namespace keel {

// How many examples a round has, of which the last one may have fewer.
inline constexpr std::int64_t kWalkRound = 4096;

// Reads every example once, in rounds of neighbours. Threads call `take` with those from number `first` on; after each
// round the caller's thread calls `end_round` with its first number and the one behind its last. What `take` throws
// ends it.
void walk(const Dataset& data, const std::function<void(std::int64_t first, std::vector<Example> examples)>& take,
          const std::function<void(std::int64_t begin, std::int64_t end)>& end_round);

}  // namespace keel
