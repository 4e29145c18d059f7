#pragma once
// The random draws that order data: pure functions of a seed and a place, the same on every rank and thread.

#include <cstdint>

namespace keel {

// Keeps draws of one seed for different purposes independent.
enum class DrawPurpose : std::uint32_t { window = 1, shuffle, addition };

// A number uniform in [0, bound). row < 2^32, attempt < 2^24.
std::int64_t draw_below(std::int64_t bound, std::uint64_t seed, DrawPurpose purpose, std::int64_t step,
                        std::int64_t row, std::uint32_t attempt = 0);

// The element at place index % size of epoch index / size: over an epoch each of [0, size) comes once, in an order of
// the epoch's own. Needs no memory: a Feistel network on the smallest sufficient even number of bits (Luby, Rackoff
// 1988), applied again while its value is not below `size` (Black, Rogaway 2002).
std::int64_t shuffled(std::int64_t index, std::int64_t size, std::uint64_t seed);

}  // namespace keel
