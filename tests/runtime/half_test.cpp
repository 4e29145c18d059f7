#include "keel/runtime/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace keel {
namespace {

// IEEE 754's binary16, by its definition in double: a sign, 5 bits of exponent and 10 of fraction.
float widened(std::uint16_t word) {
  const double sign = word & 0x8000 ? -1 : 1, fraction = word & 0x3ff;
  const int exponent = word >> 10 & 0x1f;
  if (exponent == 0x1f) return static_cast<float>(fraction == 0 ? sign * INFINITY : NAN);
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return static_cast<float>(sign * magnitude);
}

// The nearest one, and of two the even one.
std::uint16_t narrowed(float x) {
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(x));
  if (magnitude >= 65520) return sign | 0x7c00;  // halfway between the largest number and the next power of two
  if (magnitude < 0x1p-14) return static_cast<std::uint16_t>(sign + std::nearbyint(std::ldexp(magnitude, 24)));
  const int exponent = std::ilogb(magnitude);
  const double units = std::nearbyint(std::ldexp(magnitude, 10 - exponent));  // 1024 to 2048
  return static_cast<std::uint16_t>(sign + ((exponent + 15) << 10) + static_cast<int>(units) - 1024);
}

TEST(F16, EveryValueWidensToTheNumberThatIeee754HasForIt) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto word = static_cast<std::uint16_t>(bits);
    const float expected = widened(word);
    const float got = static_cast<float>(f16::from_bits(word));
    if (std::isnan(expected)) ASSERT_TRUE(std::isnan(got)) << bits;
    else ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(expected)) << bits;
  }
}

TEST(F16, NarrowingTakesTheNearestAndEvenOnATieForFloatsOfEverySize) {
  const auto check = [](float x) {
    if (std::isnan(x)) ASSERT_TRUE(std::isnan(static_cast<float>(f16(x))));
    else ASSERT_EQ(f16(x).bits, narrowed(x)) << std::hexfloat << x;
  };
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 997)
    check(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  // Every midpoint between neighbours, and the floats beside it.
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float low = static_cast<float>(f16::from_bits(static_cast<std::uint16_t>(bits)));
    const float high =
        bits == 0x7bff ? 65536.0f : static_cast<float>(f16::from_bits(static_cast<std::uint16_t>(bits + 1)));
    const float middle = (low + high) / 2;
    for (const float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) check(x), check(-x);
  }
}

TEST(Bf16, EveryValueSurvivesARoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto word = static_cast<std::uint16_t>(bits);
    const float wide = static_cast<float>(bf16::from_bits(word));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(wide), bits << 16);
    if (std::isnan(wide)) ASSERT_TRUE(std::isnan(static_cast<float>(bf16(wide))));
    else ASSERT_EQ(bf16(wide).bits, word);
  }
}

TEST(Bf16, NarrowingTakesTheNearestAndEvenOnATie) {
  for (std::uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const std::uint32_t low = bits << 16;
    const auto rounded = [](std::uint32_t word) { return bf16(std::bit_cast<float>(word)).bits; };
    ASSERT_EQ(rounded(low + 0x7fff), bits);
    ASSERT_EQ(rounded(low + 0x8001), bits + 1);
    ASSERT_EQ(rounded(low + 0x8000), bits + (bits & 1)) << bits;
    ASSERT_EQ(rounded((low + 0x8000) | 0x80000000u), 0x8000u | (bits + (bits & 1)));
  }
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(std::bit_cast<float>(0x7f800001u)))));  // low bits only
}

}  // namespace
}  // namespace keel
