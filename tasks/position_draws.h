#pragma once
// The draws of each position of a row: the same on every rank and thread.

#include <cstddef>
#include <cstdint>

#include "keel/runtime/random.h"

namespace keel {

// Four words: Philox at counter (position, 0, low 32 bits of `draw`, high 32 bits). Position < 2^32.
inline PhiloxWords words_at(std::size_t position, PhiloxKey key, std::uint64_t draw) {
  return philox({static_cast<std::uint32_t>(position), 0, static_cast<std::uint32_t>(draw),
                 static_cast<std::uint32_t>(draw >> 32)},
                key);
}

}  // namespace keel
