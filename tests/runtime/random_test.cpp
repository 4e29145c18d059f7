#include "keel/runtime/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "keel/runtime/error.h"

namespace keel {
namespace {

TEST(Philox, GivesTheAnswersThatItsAuthorsPublished) {
  const std::uint32_t ones = 0xffffffffu;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxWords{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, StreamsAreNumberedAcrossThe32BitBoundary) {
  const PhiloxKey key = key_of(3, "name");
  const std::uint64_t i = (std::uint64_t{5} << 34) + 2;
  EXPECT_EQ(stream_word(key, i), philox({0, 5, 0, 0}, key)[2]);
}

TEST(Random, TheStreamOfANamedTensorIsTheOneOfTheGoldenFiles) {
  std::vector<float> values(6);
  fill_uniform(values, 1, "wte.weight");  // "philox.uniform" of tests/golden/gpt2_tiny.safetensors
  EXPECT_EQ(values,
            (std::vector<float>{0x1.b4ep-13, 0x1.40c58p-1, 0x1.f3cap-3, 0x1.3f2108p-3, 0x1.44475p-4, 0x1.27314p-1}));
}

TEST(Random, SlicesOfAFillEqualTheWhole) {
  for (const auto fill : {fill_uniform, fill_normal}) {
    std::vector<float> whole(1000);
    fill(whole, 7, "w", 0);
    for (const std::size_t first : {0, 1, 2, 3, 5, 127, 129, 640})
      for (const std::size_t count : {0, 1, 2, 3, 130, 300}) {
        std::vector<float> part(count);
        fill(part, 7, "w", first);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(first)));
      }
    std::vector<float> other(1000);
    fill(other, 8, "w", 0);
    EXPECT_NE(whole, other);
    fill(other, 7, "v", 0);
    EXPECT_NE(whole, other);
  }
}

TEST(Random, UniformNumbersFillTheUnitInterval) {
  std::vector<float> values(1 << 18);
  fill_uniform(values, 1, "u");
  double sum = 0, squares = 0;
  for (const float u : values) {
    ASSERT_TRUE(0 <= u && u < 1);
    ASSERT_EQ(std::floor(u * 0x1p24f), u * 0x1p24f);
    sum += u;
    squares += static_cast<double>(u) * u;
  }
  EXPECT_NEAR(sum / (1 << 18), 0.5, 0.003);
  EXPECT_NEAR(squares / (1 << 18), 1.0 / 3, 0.003);
  EXPECT_EQ(to_uniform(0), 0);
  EXPECT_LT(to_uniform(0xffffffffu), 1);
}

TEST(Random, NormalNumbersHaveTheMomentsOfANormal) {
  std::vector<float> values(1 << 18);
  fill_normal(values, 1, "n");
  double moments[5] = {}, neighbours = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    double power = 1;
    for (double& moment : moments) moment += power, power *= values[i];
    if (i % 2 == 1) neighbours += static_cast<double>(values[i]) * values[i - 1];
  }
  const double n = 1 << 18;
  EXPECT_NEAR(moments[1] / n, 0, 0.01);
  EXPECT_NEAR(moments[2] / n, 1, 0.015);
  EXPECT_NEAR(moments[3] / n, 0, 0.04);
  EXPECT_NEAR(moments[4] / n, 3, 0.12);
  EXPECT_NEAR(neighbours / (n / 2), 0, 0.015);
  for (const std::uint32_t word : {0u, 0xffffffffu}) {  // the ends of the logarithm's range
    EXPECT_TRUE(std::isfinite(to_normal(word, 0).first));
    EXPECT_TRUE(std::isfinite(to_normal(word, word).second));
  }
}

TEST(Random, NumbersBelowNAreEvenlySpread) {
  std::vector<int> counts(7);
  const PhiloxKey key = key_of(1, "below");
  for (std::uint32_t i = 0; i < 70000; ++i) {
    const PhiloxWords words = stream_block(key, i);
    ++counts.at(random_below(std::uint64_t{words[0]} << 32 | words[1], 7));
  }
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  EXPECT_EQ(random_below(~std::uint64_t{0}, 7), 6u);
  EXPECT_EQ(random_below(~std::uint64_t{0}, ~std::uint64_t{0}), ~std::uint64_t{0} - 1);
}

TEST(RandomOrder, VisitsEveryElementOnce) {
  for (const std::uint64_t n : {1, 2, 3, 4, 5, 7, 16, 17, 99, 100, 101, 1000, 65537}) {
    const RandomOrder order(n, 3, 1);
    std::vector<char> seen(n);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t at = order[i];
      ASSERT_LT(at, n);
      ASSERT_FALSE(seen[at]) << "n " << n << " visits " << at << " twice";
      seen[at] = 1;
    }
  }
  EXPECT_LT(RandomOrder(std::uint64_t{1} << 50, 1, 1)[12345], std::uint64_t{1} << 50);
  EXPECT_THROW(RandomOrder(0, 1, 1), Error);
  EXPECT_THROW(RandomOrder(5, 1, 1)[5], Error);
}

TEST(RandomOrder, EveryElementIsEquallyLikelyAtEveryPlace) {
  constexpr std::uint64_t n = 6;
  std::vector<int> counts(n * n);
  for (std::uint64_t epoch = 0; epoch < 12000; ++epoch) {
    const RandomOrder order(n, 1, epoch);
    for (std::uint64_t i = 0; i < n; ++i) ++counts[i * n + order[i]];
  }
  for (const int count : counts) EXPECT_NEAR(count, 2000, 200);
}

TEST(RandomOrder, SeedsAndEpochsGiveDifferentOrdersWithoutTrend) {
  constexpr std::uint64_t n = 10000;
  const RandomOrder a(n, 1, 1), b(n, 1, 2), c(n, 2, 1);
  int same_b = 0, same_c = 0;
  double trend = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    same_b += a[i] == b[i];
    same_c += a[i] == c[i];
    trend += (static_cast<double>(i) / n - 0.5) * (static_cast<double>(a[i]) / n - 0.5);
  }
  EXPECT_LT(same_b, 10);  // one is expected
  EXPECT_LT(same_c, 10);
  EXPECT_NEAR(trend / n * 12, 0, 0.04);  // correlation of place and element
}

}  // namespace
}  // namespace keel
