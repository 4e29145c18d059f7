#pragma once
// Work dealt out evenly.

#include <cstdint>
#include <span>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

// Who gets each of several things, as numbers from 0 to `receivers` - 1: the costliest first, of equal ones the first,
// each to who has the least so far, of those the first.
std::vector<int> deal_by_cost(std::span<const std::int64_t> costs, int receivers);

}  // namespace keel
