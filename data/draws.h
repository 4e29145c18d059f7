#pragma once
// The draws that order data: pure functions of a key and a place, the same on every rank and thread.

#include <cstdint>

#include "keel/runtime/random.h"

namespace keel {

// The number in [0, bound), bound >= 1, of a row of a step; row < 2^32. Other values of `attempt` give further numbers.
std::int64_t draw_below(std::int64_t bound, PhiloxKey key, std::int64_t step, std::int64_t row,
                        std::uint32_t attempt = 0);

// Element index % size of epoch index / size, where each epoch has every number of [0, size) once, in its own order.
std::int64_t epoch_element(std::int64_t index, std::int64_t size, std::uint64_t seed);

}  // namespace keel
