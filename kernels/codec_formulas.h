#pragma once
// The formulas of codecs for single numbers, and their places in a payload: one source for the loops of every device.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "keel/runtime/hd.h"
#include "keel/runtime/random.h"

namespace keel::codec {

// The magnitude of a number as an integer: integers have the order of magnitudes, and infinities and NaN are the
// largest.
KEEL_HD inline std::uint32_t size_bits(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu; }
inline constexpr int kSizeBits = 31;
inline constexpr std::uint32_t kInfinity = 0x7f800000u;

// Payloads begin at any byte.
template <class T>
KEEL_HD void put(std::byte* payload, std::int64_t i, const T& value) {
  std::memcpy(payload + i * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}
template <class T>
KEEL_HD T get(const std::byte* payload, std::int64_t i) {
  T value;
  std::memcpy(&value, payload + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// A payload of int8 holds all scales, then all multiples; this is where the multiples begin.
KEEL_HD inline std::int8_t* multiples_of(std::byte* payload, std::int64_t bytes, std::int64_t count) {
  return reinterpret_cast<std::int8_t*>(payload + bytes - count);
}
// One of int4 holds them in pairs: byte i of a block has number i in its lower half, and number i + 128 in the upper.
inline constexpr std::int64_t kPairs = 128;  // of a block
KEEL_HD inline std::byte* pairs_of(std::byte* payload, std::int64_t blocks, std::int64_t block) {
  return payload + blocks * 4 + block * kPairs;
}
KEEL_HD inline std::byte pair_of(std::int8_t lower, std::int8_t upper) {
  return static_cast<std::byte>((lower & 0xf) | (upper & 0xf) << 4);
}
KEEL_HD inline float lower_of(std::byte pair) {
  return static_cast<float>((static_cast<int>(pair & std::byte{0xf}) ^ 8) - 8);
}
KEEL_HD inline float upper_of(std::byte pair) { return lower_of(pair >> 4); }

// The largest multiples.
inline constexpr float kLargestInt8 = 127, kLargestInt4 = 7;
// The scale of a block whose largest magnitude has these bits.
KEEL_HD inline float scale_of(std::uint32_t largest, float largest_multiple) {
  return largest < kInfinity ? std::bit_cast<float>(largest) / largest_multiple
                             : std::numeric_limits<float>::quiet_NaN();
}
// The multiple that is sent; x becomes the residual.
KEEL_HD inline std::int8_t take_multiple(float& x, float scale, float largest_multiple) {
  if (!(scale > 0)) return 0;  // nothing to send, or nothing that can be sent
  const float nearest = std::nearbyint(x / scale);
  const float multiple = nearest < -largest_multiple  ? -largest_multiple
                         : nearest > largest_multiple ? largest_multiple
                                                      : nearest;
  x -= scale * multiple;
  return static_cast<std::int8_t>(multiple);
}

// A payload of top_k is a sequence of these, by ascending index.
struct Kept {
  std::uint32_t place;
  float number;
};
inline constexpr std::int64_t kKeptBytes = sizeof(Kept);

// top_k_2bit sends the sign of each number that is kept, and whether its size is above the mean of their sizes: the
// larger and the smaller ones arrive as the means of these two classes. What is added up are integers, the sizes as
// multiples of 2^-30 of the largest, so that the order makes no difference.
struct SizeClasses {
  std::uint32_t largest = 0;  // bits of the largest size
  std::int64_t kept = 0;
  std::uint64_t sum = 0;         // of all sizes
  std::uint64_t larger_sum = 0;  // of those above the mean
  std::int64_t larger = 0;       // how many these are
};
inline constexpr double kSizeUnits = 1 << 30;
KEEL_HD inline std::uint64_t size_units(float x, std::uint32_t largest) {
  if (largest == 0 || largest >= kInfinity) return 0;
  const auto size = static_cast<double>(std::bit_cast<float>(size_bits(x)));
  const double units = size / static_cast<double>(std::bit_cast<float>(largest)) * kSizeUnits;
  return static_cast<std::uint64_t>(std::floor(units + 0.5));
}
KEEL_HD inline bool is_larger(float x, const SizeClasses& classes) {
  return size_units(x, classes.largest) * static_cast<std::uint64_t>(classes.kept) > classes.sum;
}

struct Levels {
  float smaller, larger;
};
inline constexpr std::int64_t kLevelBytes = sizeof(Levels);
// The mean of so many sizes with this sum.
KEEL_HD inline float level_of(std::uint64_t sum, std::int64_t count, std::uint32_t largest) {
  if (largest >= kInfinity) return std::numeric_limits<float>::quiet_NaN();
  if (count == 0) return 0;
  return static_cast<float>(static_cast<double>(sum) / static_cast<double>(count) / kSizeUnits *
                            static_cast<double>(std::bit_cast<float>(largest)));
}
KEEL_HD inline Levels levels_of(const SizeClasses& classes) {
  return {level_of(classes.sum - classes.larger_sum, classes.kept - classes.larger, classes.largest),
          level_of(classes.larger_sum, classes.larger, classes.largest)};
}

// Behind the levels lie entries of `width` bits, from the lowest bit of the first byte on: the place among `count`
// numbers, then a bit for the class and one for the sign.
KEEL_HD constexpr int place_bits(std::int64_t count) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count - 1)));
}
KEEL_HD constexpr int entry_width(std::int64_t count) { return place_bits(count) + 2; }
struct Entry {
  std::uint64_t bits = 0;
  int place_bits = 0;

  KEEL_HD Entry(std::uint64_t packed, int width) : bits(packed), place_bits(width - 2) {}
  KEEL_HD Entry(const Kept& kept, const SizeClasses& classes, int width) : place_bits(width - 2) {
    const std::uint64_t larger = is_larger(kept.number, classes) ? 1 : 0, negative = kept.number < 0 ? 2 : 0;
    bits = kept.place | (larger | negative) << place_bits;
  }
  KEEL_HD std::int64_t place() const {
    return static_cast<std::int64_t>(bits & ((std::uint64_t{1} << place_bits) - 1));
  }
  KEEL_HD float number(const Levels& levels) const {
    const float size = (bits >> place_bits & 1) != 0 ? levels.larger : levels.smaller;
    return (bits >> place_bits & 2) != 0 ? -size : size;
  }
};
// A byte of `entries` entries; entry(i) is one of them.
template <class F>
KEEL_HD std::byte packed_byte(std::int64_t byte, int width, std::int64_t entries, const F& entry) {
  const std::int64_t from = 8 * byte, last = (from + 7) / width;
  std::uint64_t bits = 0;
  for (std::int64_t i = from / width; i <= last && i < entries; ++i) {
    const std::int64_t shift = i * width - from;
    bits |= shift >= 0 ? entry(i).bits << shift : entry(i).bits >> -shift;
  }
  return static_cast<std::byte>(bits & 0xff);
}
KEEL_HD inline Entry packed_entry(const std::byte* entries, int width, std::int64_t i) {
  const std::int64_t from = i * width;
  std::uint64_t bits = 0;
  for (std::int64_t byte = (from + width - 1) / 8; byte >= from / 8; --byte)
    bits = bits << 8 | static_cast<std::uint64_t>(entries[byte]);
  return {bits >> (from % 8) & ((std::uint64_t{1} << width) - 1), width};
}

// The factor that normalises a column. `before` is its norm at the start, `norm` its norm after its projections on the
// earlier columns were subtracted. Where a column of fp32 numbers depends on the earlier ones, rounding leaves at most
// 1e-6 of it: such a column gets the factor 0. Where a norm is not finite the factor is 0 or NaN, so that elements that
// are not finite become NaN.
KEEL_HD inline double normalising_factor(double norm, double before) { return norm <= 1e-6 * before ? 0 : 1 / norm; }

// Element i of the key's stream of normal numbers.
KEEL_HD inline float normal_at(PhiloxKey key, std::int64_t i) {
  const PhiloxWords words = stream_block(key, static_cast<std::uint64_t>(i / 4));
  const std::size_t pair = i % 4 < 2 ? 0 : 2;
  const NormalPair normal = to_normal(words[pair], words[pair + 1]);
  return i % 2 == 0 ? normal.first : normal.second;
}

}  // namespace keel::codec
