#pragma once
// Numbers of at most 1 in size as codes of 8 bits: many sizes near 1, and some in each of seven decades.
//
// The dynamic map of Dettmers et al. 2022, "8-bit optimizers via block-wise quantization" (section 2.2 and appendix):
// the decade that ends at 10^(d - 6), d = 0 ... 6, has 2^d sizes, or 2^(d + 1) in the map without signs: the middles of
// as many equal parts of [10^(d - 7), 10^(d - 6)]. With 0 and 1 that makes 256 numbers; of the map with signs 127 are
// negative, and -1 is none. Codes are in the order of the numbers.
//
// A state of an optimizer is kept in blocks of kStateBlock elements: a scale, the largest size in the block, and for
// each element the code of the number nearest to element / scale; of two equally near numbers, the smaller in size.

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include "keel/runtime/hd.h"

namespace keel {

inline constexpr std::int64_t kStateBlock = 256;  // as bitsandbytes has it
// The number of scales of so many elements, counted from the beginning of their parameter.
constexpr std::int64_t state_blocks(std::int64_t elements) { return (elements + kStateBlock - 1) / kStateBlock; }

struct DynamicMap {
  static constexpr int kCodes = 256;
  // Which sizes are possible follows from the first bits of a float: its exponent and 7 bits more. A bucket of floats
  // that begin alike has at most one border between two sizes.
  static constexpr int kDroppedBits = 16;
  static constexpr int kFirstBucket = static_cast<int>(std::bit_cast<std::uint32_t>(1.6e-7f) >> kDroppedBits);
  static constexpr int kBuckets =
      static_cast<int>(std::bit_cast<std::uint32_t>(1.0f) >> kDroppedBits) - kFirstBucket + 1;
  static constexpr int kBucketWords = (kBuckets + 3) / 4;  // of 4 bytes
  static constexpr float kNoBorder = std::numeric_limits<float>::infinity();

  int zero;   // the code of 0; below it are the negative numbers
  int sizes;  // above 0; the last is 1
  std::array<float, kCodes> values;
  std::array<float, kCodes> borders;  // the middle between size i and the next, counted from 0
  // By bucket: the number of the size that is nearest to its first float.
  alignas(4) std::array<std::uint8_t, 4 * kBucketWords> smaller;
};

// The number of the size that is nearest to that of x, counted from 0; x is a float's bits without the sign. For a NaN
// or a number larger than 1 the result is any size. `smaller` and `borders` are a map's, wherever they lie.
template <class Smaller, class Borders>
KEEL_HD std::int32_t nearest_size(std::int32_t x, const Smaller& smaller, const Borders& borders) {
  std::int32_t bucket = (x >> DynamicMap::kDroppedBits) - DynamicMap::kFirstBucket;
  bucket = bucket < 0 ? 0 : bucket < DynamicMap::kBuckets ? bucket : DynamicMap::kBuckets - 1;
  const std::int32_t size = smaller[bucket];
  return size + (std::bit_cast<float>(x) > borders[size] ? 1 : 0);
}

constexpr DynamicMap make_dynamic_map(bool has_signs) {
  DynamicMap map{};
  map.zero = has_signs ? 127 : 0;
  map.sizes = DynamicMap::kCodes - 1 - map.zero;
  constexpr double kEnds[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
  const auto zero = static_cast<std::size_t>(map.zero);
  std::size_t size = 0;
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = (has_signs ? 1 : 2) << decade;
    for (int part = 0; part < parts; ++part) {
      const auto number = static_cast<float>(kEnds[decade] * (0.1 + 0.9 * (part + 0.5) / parts));
      map.values[zero + ++size] = number;
      if (has_signs) map.values[zero - size] = -number;
    }
  }
  map.values[DynamicMap::kCodes - 1] = 1;
  for (std::size_t i = 0; i < size + 1; ++i) map.borders[i] = (map.values[zero + i] + map.values[zero + i + 1]) / 2;
  map.borders[static_cast<std::size_t>(map.sizes)] = DynamicMap::kNoBorder;
  int smaller = 0;
  for (int bucket = 0; bucket < DynamicMap::kBuckets; ++bucket) {
    const auto first =
        std::bit_cast<float>(static_cast<std::uint32_t>(bucket + DynamicMap::kFirstBucket) << DynamicMap::kDroppedBits);
    while (map.borders[static_cast<std::size_t>(smaller)] < first) ++smaller;
    map.smaller[static_cast<std::size_t>(bucket)] = static_cast<std::uint8_t>(smaller);
  }
  return map;
}

// Whether at most one border lies in each bucket, and none before the first.
constexpr bool finds_every_size(const DynamicMap& map) {
  if (map.borders[0] < std::bit_cast<float>(std::uint32_t{DynamicMap::kFirstBucket} << DynamicMap::kDroppedBits))
    return false;
  for (std::size_t bucket = 0; bucket + 1 < DynamicMap::kBuckets; ++bucket)
    if (map.smaller[bucket + 1] > map.smaller[bucket] + 1) return false;
  return true;
}

inline constexpr DynamicMap kMapWithSigns = make_dynamic_map(true), kMapWithoutSigns = make_dynamic_map(false);
static_assert(finds_every_size(kMapWithSigns) && finds_every_size(kMapWithoutSigns));

// The code of the number that is nearest to x; x as at nearest_size().
template <class Smaller, class Borders>
KEEL_HD std::int32_t code_of(bool has_signs, float x, const Smaller& smaller, const Borders& borders) {
  const auto bits = std::bit_cast<std::int32_t>(x);
  const std::int32_t size = nearest_size(bits & 0x7fffffff, smaller, borders);
  if (!has_signs) return size;
  return bits < 0 ? 127 - (size < 127 ? size : 127) : 127 + size;
}

}  // namespace keel
