#pragma once
// Random numbers by counting, for exercises: which number comes depends on where it is used, not on how many
// came before. Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011).

#include <cstdint>

namespace learn {

// 32 random bits of element `element` at step `step`: always the same, and without relation to those of
// others.
inline std::uint32_t random_word(std::uint64_t seed, std::uint32_t step, std::uint64_t element) {
  std::uint32_t counter[4] = {static_cast<std::uint32_t>(element), static_cast<std::uint32_t>(element >> 32),
                              step, 0};
  std::uint32_t key[2] = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t even = std::uint64_t{0xD2511F53u} * counter[0],
                        odd = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter[0] = static_cast<std::uint32_t>(odd >> 32) ^ counter[1] ^ key[0];
    counter[1] = static_cast<std::uint32_t>(odd);
    counter[2] = static_cast<std::uint32_t>(even >> 32) ^ counter[3] ^ key[1];
    counter[3] = static_cast<std::uint32_t>(even);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter[0];
}

}  // namespace learn
