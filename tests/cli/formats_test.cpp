// What number types can hold, and the page of `keel docs formats`.

#include "cli/formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/cli/program.h"

namespace keel::cli {
namespace {

template <class T>
void expect_limits(DType dtype) {
  using Limits = std::numeric_limits<T>;
  const NumberFormat format = format_of(dtype);
  EXPECT_EQ(format.significant_bits, Limits::digits);
  EXPECT_EQ(format.largest, Limits::max());
  EXPECT_EQ(format.smallest_normal, Limits::min());
  EXPECT_EQ(format.smallest, Limits::denorm_min());
  EXPECT_EQ(format.gap, Limits::epsilon());
}

TEST(Formats, OfTheProcessorsTypesAreItsLimits) {
  expect_limits<float>(DType::f32);
  expect_limits<double>(DType::f64);
}

// IEEE 754 binary16, and bfloat16: the upper half of binary32.
TEST(Formats, OfSixteenBitsAreThoseOfTheirDefinitions) {
  const NumberFormat half = format_of(DType::f16), brain = format_of(DType::bf16);
  EXPECT_EQ(half.significant_bits, 11);
  EXPECT_EQ(half.largest, 65504);
  EXPECT_EQ(half.smallest_normal, std::ldexp(1.0, -14));
  EXPECT_EQ(half.smallest, std::ldexp(1.0, -24));
  EXPECT_EQ(half.gap, std::ldexp(1.0, -10));
  EXPECT_EQ(brain.significant_bits, 8);
  EXPECT_EQ(brain.largest, std::ldexp(255.0, 120));
  EXPECT_EQ(brain.smallest_normal, std::ldexp(1.0, -126));
  EXPECT_EQ(brain.smallest, std::ldexp(1.0, -133));
  EXPECT_EQ(brain.gap, std::ldexp(1.0, -7));
}

TEST(Formats, ThePageIsUpToDateAndHasEveryType) {
  const testing::Outcome page = testing::run_keel("docs formats");
  EXPECT_EQ(page.code, 0) << page.err;
  EXPECT_EQ(page.out, formats_reference());
  EXPECT_EQ(read_text_file(KEEL_SOURCE_DIR "/docs/formats.md"), page.out)
      << "run `build/keel docs formats > docs/formats.md`";
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_NE(page.out.find(concat("\n| ", dtype, " | ", size_of(dtype), " | ")), std::string::npos) << dtype;
  }
}

}  // namespace
}  // namespace keel::cli
