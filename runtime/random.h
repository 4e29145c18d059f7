#pragma once
// Counter-based random numbers: the same on every device, at every world size and thread count.
//
// Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// A stream is named by a seed and a name; element i of it is word i % 4 of Philox at counter
// (low 32 bits of i / 4, high 32 bits of i / 4, 0, 0), so any part of it can be made alone.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "keel/runtime/hd.h"
#include "keel/runtime/math.h"

namespace keel {

struct PhiloxKey {
  std::uint32_t low, high;
};
using PhiloxWords = std::array<std::uint32_t, 4>;

// Four random words from a counter; a bijection of the counter for every key.
KEEL_HD constexpr PhiloxWords philox(PhiloxWords counter, PhiloxKey key) {
  auto [c0, c1, c2, c3] = counter;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ key.low;
    c1 = static_cast<std::uint32_t>(product1);
    c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ key.high;
    c3 = static_cast<std::uint32_t>(product0);
    key.low += 0x9E3779B9u;
    key.high += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// The finaliser of SplitMix64 (Steele, Lea and Flood 2014): a bijection in which every input bit counts.
KEEL_HD constexpr std::uint64_t mix64(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// FNV-1a (Fowler, Noll, Vo) of a name's bytes.
constexpr std::uint64_t fnv1a64(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

KEEL_HD constexpr PhiloxKey to_key(std::uint64_t bits) {
  return {static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32)};
}
constexpr PhiloxKey key_of(std::uint64_t seed, std::string_view name) { return to_key(mix64(seed ^ fnv1a64(name))); }

// Elements 4 block ... 4 block + 3 of a stream.
KEEL_HD constexpr PhiloxWords stream_block(PhiloxKey key, std::uint64_t block) {
  return philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0}, key);
}
KEEL_HD constexpr std::uint32_t stream_word(PhiloxKey key, std::uint64_t i) {
  return stream_block(key, i / 4)[static_cast<std::size_t>(i % 4)];
}

// A multiple of 2^-24 in [0, 1).
KEEL_HD constexpr float to_uniform(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

struct NormalPair {
  float first, second;
};
// Two independent standard normal numbers from two words (Box and Muller 1958); at most 5.77 in size.
KEEL_HD inline NormalPair to_normal(std::uint32_t a, std::uint32_t b) {
  const float above_zero = static_cast<float>((a >> 8) + 1) * 0x1p-24f;  // in (0, 1], so that its log is finite
  const float radius = math::sqrt(-2.0f * math::log(above_zero));
  const math::SinCos angle = math::sincos_2pi(to_uniform(b));
  return {radius * angle.cos, radius * angle.sin};
}

// A number in [0, n) from 64 random bits: the high half of a product, whose bias is below n / 2^64.
KEEL_HD constexpr std::uint64_t random_below(std::uint64_t bits, std::uint64_t n) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((Wide{bits} * n) >> 64);
}

// Elements [first, first + out.size()) of the stream (seed, name), as uniform numbers in [0, 1) or
// as standard normal ones (elements 2 j and 2 j + 1 come from words 2 j and 2 j + 1). A tensor may be
// filled slice by slice: the numbers depend on the global element index alone.
void fill_uniform(std::span<float> out, std::uint64_t seed, std::string_view name, std::uint64_t first = 0);
void fill_normal(std::span<float> out, std::uint64_t seed, std::string_view name, std::uint64_t first = 0);

// A pseudo-random order of [0, n) whose i-th element is computed alone, in constant time and memory.
//
// A Feistel network with Philox as round function permutes the cells of a rectangle barely larger than
// n, and cells outside [0, n) are walked past (Black and Rogaway, "Ciphers with arbitrary finite domains",
// CT-RSA 2002).
class RandomOrder {
 public:
  // n >= 1. Different (seed, epoch) give unrelated orders.
  RandomOrder(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch);
  std::uint64_t size() const { return n_; }
  // i in [0, n).
  std::uint64_t operator[](std::uint64_t i) const;

 private:
  std::uint64_t permute(std::uint64_t cell) const;

  std::uint64_t n_, rows_, columns_;
  PhiloxKey key_;
};

// What a dropout mask depends on besides (global sample, position, channel).
struct DropoutKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t call = 0;  // counts the random operations of one forward pass
};

constexpr PhiloxKey key_of(const DropoutKey& key) {
  return to_key(mix64(mix64(mix64(key.seed ^ fnv1a64("dropout")) ^ key.step) ^ key.call));
}
// The words that decide channels 4 block ... 4 block + 3 at (global sample, position).
KEEL_HD constexpr PhiloxWords dropout_words(PhiloxKey key, std::uint64_t sample, std::uint32_t position,
                                            std::uint32_t block) {
  return philox({block, position, static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32)}, key);
}
// An element is kept when its word is at least this. probability in [0, 1).
constexpr std::uint32_t dropout_threshold(double probability) {
  return static_cast<std::uint32_t>(probability * 0x1p32);
}

// Hands out call numbers during a forward pass; recomputation replays them from a saved number.
struct RandomStream {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint32_t next_call = 0;
  DropoutKey next() { return {seed, step, next_call++}; }
};

}  // namespace keel
