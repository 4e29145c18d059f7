#pragma once
// The words of Philox, as the exercise philox gets and returns them.

#include <array>
#include <cstdint>

namespace learn {

using Words = std::array<std::uint32_t, 4>;
struct Key {
  std::uint32_t low, high;
};

}  // namespace learn
