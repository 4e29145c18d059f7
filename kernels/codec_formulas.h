#pragma once
// What codecs do to single numbers, and where it lies in a payload: one source for the loops of every device.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "keel/runtime/hd.h"
#include "keel/runtime/random.h"

namespace keel::codec {

// Sizes of numbers in their order as integers; what is not finite is larger than all that is.
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

// int8: all scales, then all multiples.
KEEL_HD inline std::int8_t* multiples_of(std::byte* payload, std::int64_t bytes, std::int64_t count) {
  return reinterpret_cast<std::int8_t*>(payload + bytes - count);
}
// Of a block whose largest size has these bits.
KEEL_HD inline float scale_of(std::uint32_t largest) {
  return largest < kInfinity ? std::bit_cast<float>(largest) / 127 : std::numeric_limits<float>::quiet_NaN();
}
// The multiple that is sent; x becomes what is left of it.
KEEL_HD inline std::int8_t take_multiple(float& x, float scale) {
  if (!(scale > 0)) return 0;  // nothing to send, or nothing that can be sent
  const float nearest = std::nearbyint(x / scale);
  const float multiple = nearest < -127 ? -127 : nearest > 127 ? 127 : nearest;
  x -= scale * multiple;
  return static_cast<std::int8_t>(multiple);
}

// top_k: one behind the other, by place.
struct Kept {
  std::uint32_t place;
  float number;
};
inline constexpr std::int64_t kKeptBytes = sizeof(Kept);

// By what a column of length `norm` is multiplied, which had `before` until those before it were taken from it. Of what
// fp32 numbers say, no more than 1e-6 is left where a column depends on others. Of what is not finite nothing finite
// comes.
KEEL_HD inline double normalising_factor(double norm, double before) { return norm <= 1e-6 * before ? 0 : 1 / norm; }

// Element i of the key's stream of normal numbers.
KEEL_HD inline float normal_at(PhiloxKey key, std::int64_t i) {
  const PhiloxWords words = stream_block(key, static_cast<std::uint64_t>(i / 4));
  const std::size_t pair = i % 4 < 2 ? 0 : 2;
  const NormalPair normal = to_normal(words[pair], words[pair + 1]);
  return i % 2 == 0 ? normal.first : normal.second;
}

}  // namespace keel::codec
