#pragma once
// Counter-based random numbers: the same on every device, at every world size and thread count.
//
// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

#include <array>
#include <cstdint>
#include <string_view>

#include "keel/runtime/hd.h"

namespace keel {

// What a dropout mask depends on besides (global sample, position, channel).
struct DropoutKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t call = 0;  // counts the random operations of one forward pass
};

// Hands out call numbers during a forward pass; recomputation replays them from a saved number.
struct RandomStream {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t next_call = 0;
  DropoutKey next() { return {seed, step, next_call++}; }
};

}  // namespace keel
