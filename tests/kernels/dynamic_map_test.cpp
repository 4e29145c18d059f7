// Laws of the maps of 8 bits, which every float of some ten thousand is held to.

#include "keel/kernels/dynamic_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace keel {
namespace {

constexpr const DynamicMap* kMaps[] = {&kMapWithoutSigns, &kMapWithSigns};

bool has_signs(const DynamicMap& map) { return map.zero != 0; }
int code(const DynamicMap& map, float x) { return code_of(has_signs(map), x, map.smaller, map.borders); }
float rounded(const DynamicMap& map, float x) { return map.values[static_cast<std::size_t>(code(map, x))]; }

// Floats from -1 (or 0) to 1 in their order: of all sizes down to 0, and both neighbours of every border.
std::vector<float> floats_of(const DynamicMap& map) {
  std::vector<float> sizes = {0, 1, std::nextafter(1.0F, 0.0F)};
  for (std::uint32_t bits = 1; bits < std::bit_cast<std::uint32_t>(1.0F); bits += 40'009)
    sizes.push_back(std::bit_cast<float>(bits));
  for (std::size_t i = 0; i + 1 < static_cast<std::size_t>(map.sizes); ++i)
    for (const float x : {map.borders[i], std::nextafter(map.borders[i], 0.0F), std::nextafter(map.borders[i], 1.0F)})
      sizes.push_back(x);
  std::vector<float> all = sizes;
  for (const float x : sizes)
    if (has_signs(map)) all.push_back(-x);
  std::sort(all.begin(), all.end());
  return all;
}

TEST(DynamicMap, HasSevenDecadesOfWhichEachHasTwiceTheNumbersOfTheOneBelow) {
  for (const DynamicMap* map : kMaps) {
    EXPECT_TRUE(std::is_sorted(map->values.begin(), map->values.end()));
    EXPECT_EQ(std::adjacent_find(map->values.begin(), map->values.end()), map->values.end());
    EXPECT_EQ(map->values.back(), 1);
    EXPECT_EQ(map->values[static_cast<std::size_t>(map->zero)], 0);
    for (int decade = 0; decade < 7; ++decade) {
      const double end = std::pow(10.0, decade - 6), begin = end / 10;
      const int parts = (has_signs(*map) ? 1 : 2) << decade;
      std::vector<double> above, below;
      for (const float value : map->values) {
        if (begin < value && value < end) above.push_back(value);
        if (begin < -value && -value < end) below.push_back(-value);
      }
      std::sort(below.begin(), below.end());
      ASSERT_EQ(above.size(), static_cast<std::size_t>(parts));
      EXPECT_EQ(below, has_signs(*map) ? above : std::vector<double>{});
      for (int part = 0; part < parts; ++part) {
        const double low = begin + (end - begin) * part / parts, high = begin + (end - begin) * (part + 1) / parts;
        EXPECT_NEAR(above[static_cast<std::size_t>(part)], (low + high) / 2, 1e-7 * end);
      }
    }
  }
}

TEST(DynamicMap, EveryNumberOfTheMapIsItsOwnCode) {
  for (const DynamicMap* map : kMaps)
    for (int each = 0; each < DynamicMap::kCodes; ++each)
      EXPECT_EQ(code(*map, map->values[static_cast<std::size_t>(each)]), each);
}

TEST(DynamicMap, TakesTheNearestNumberAndOfTwoTheSmallerInSize) {
  for (const DynamicMap* map : kMaps)
    for (const float x : floats_of(*map)) {
      const double error = std::abs(static_cast<double>(rounded(*map, x)) - static_cast<double>(x));
      for (const float other : map->values) {
        const double distance = std::abs(static_cast<double>(other) - static_cast<double>(x));
        // Numbers and borders are rounded to floats.
        ASSERT_LE(error, distance + 2.5e-7 * std::abs(static_cast<double>(x))) << x << ", instead of " << other;
      }
    }
  for (const DynamicMap* map : kMaps)
    for (int size = 0; size < map->sizes; ++size) {
      const float border = map->borders[static_cast<std::size_t>(size)];
      EXPECT_EQ(code(*map, border), map->zero + size);
      if (has_signs(*map) && size < 127) { EXPECT_EQ(code(*map, -border), map->zero - size); }
    }
}

TEST(DynamicMap, ErrsByHalfAPartOfADecadeAtMost) {
  for (const DynamicMap* map : kMaps)
    for (const float x : floats_of(*map)) {
      const double size = std::abs(static_cast<double>(x));
      double bound = 1e-7;  // what is smaller than all decades may become 0
      for (int decade = 0; decade < 7; ++decade)
        if (const double end = std::pow(10.0, decade - 6); size >= end / 10)
          bound = 0.45 * end / ((has_signs(*map) ? 1 : 2) << decade);
      ASSERT_LE(std::abs(static_cast<double>(rounded(*map, x)) - static_cast<double>(x)), bound + 1e-6 * size) << x;
    }
}

TEST(DynamicMap, KeepsOrderSignAndZero) {
  for (const DynamicMap* map : kMaps) {
    int before = 0;
    for (const float x : floats_of(*map)) {
      ASSERT_GE(code(*map, x), before) << x;
      before = code(*map, x);
      ASSERT_GE(x * rounded(*map, x), 0) << x;
    }
    for (const float zero : {0.0F, -0.0F}) EXPECT_EQ(code(*map, zero), map->zero);
  }
}

TEST(DynamicMap, ReadsNoFurtherThanItsTablesWhateverTheNumber) {
  for (const DynamicMap* map : kMaps)
    for (const float x : {INFINITY, -INFINITY, NAN, -NAN, 1e30F, 1.5F, 1e-40F}) {
      EXPECT_GE(code(*map, x), 0);
      EXPECT_LT(code(*map, x), DynamicMap::kCodes);
    }
}

}  // namespace
}  // namespace keel
