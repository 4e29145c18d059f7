#include "keel/data/draws.h"

#include <array>
#include <bit>
#include <utility>

#include "keel/runtime/error.h"

namespace keel {
namespace {

constexpr std::uint32_t kFeistelRounds = 6;

using Words = std::array<std::uint32_t, 4>;

// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
Words philox_words(std::uint64_t seed, Words counter) {
  std::uint32_t key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = 0xD2511F53ull * counter[0], b = 0xCD9E8D57ull * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(a)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

Words words_of(std::uint64_t seed, DrawPurpose purpose, std::uint64_t wide, std::uint32_t narrow, std::uint32_t call) {
  return philox_words(seed, {static_cast<std::uint32_t>(wide), static_cast<std::uint32_t>(wide >> 32), narrow,
                             call << 8 | static_cast<std::uint32_t>(purpose)});
}

}  // namespace

std::int64_t draw_below(std::int64_t bound, std::uint64_t seed, DrawPurpose purpose, std::int64_t step,
                        std::int64_t row, std::uint32_t attempt) {
  KEEL_CHECK(bound > 0, "a number below ", bound, " cannot be drawn");
  const Words words =
      words_of(seed, purpose, static_cast<std::uint64_t>(step), static_cast<std::uint32_t>(row), attempt);
  // bound * (a fraction of 128 random bits): no value is favoured by more than bound / 2^128.
  using Wide = unsigned __int128;
  const auto limit = static_cast<std::uint64_t>(bound);
  const std::uint64_t high = std::uint64_t{words[0]} << 32 | words[1], low = std::uint64_t{words[2]} << 32 | words[3];
  return static_cast<std::int64_t>((Wide{high} * limit + (Wide{low} * limit >> 64)) >> 64);
}

std::int64_t shuffled(std::int64_t index, std::int64_t size, std::uint64_t seed) {
  KEEL_CHECK(index >= 0 && size > 0, "place ", index, " of ", size, " elements does not exist");
  const auto epoch = static_cast<std::uint64_t>(index / size);
  const int half_bits = (std::bit_width(static_cast<std::uint64_t>(size - 1)) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  auto value = static_cast<std::uint64_t>(index % size);
  do {
    std::uint64_t left = value >> half_bits, right = value & mask;
    for (std::uint32_t round = 0; round < kFeistelRounds; ++round) {
      const Words words = words_of(seed, DrawPurpose::shuffle, epoch, static_cast<std::uint32_t>(right), round);
      left ^= words[0] & mask;
      std::swap(left, right);
    }
    value = left << half_bits | right;
  } while (value >= static_cast<std::uint64_t>(size));
  return static_cast<std::int64_t>(value);
}

}  // namespace keel
