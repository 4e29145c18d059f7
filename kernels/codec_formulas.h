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
