#pragma once
// Things of given sizes into as few rows of one size as first fit needs.

#include <cstdint>
#include <span>
#include <vector>

#include "keel/runtime/language.h"

namespace keel {

// The row of each thing, counted from 0. The longest are placed first, those of one length in their order, each into
// the first row with room for it. Lengths in [0, room], else an Error. Takes n log n.
std::vector<std::int64_t> first_fit(std::span<const std::int64_t> lengths, std::int64_t room);

}  // namespace keel
