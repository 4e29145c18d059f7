#include "tests/by_commit.h"

#include <cstdint>

#include "keel_commit.h"

namespace keel::testing {

std::mt19937 by_commit() {
  std::uint32_t seed = 1;
  for (const char letter : cli::kCommit) seed = seed * 31 + static_cast<unsigned char>(letter);
  return std::mt19937(seed);
}

}  // namespace keel::testing
