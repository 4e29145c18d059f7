#include "keel/kernels/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "keel/kernels/elementwise.h"
#include "keel/runtime/random.h"
#include "tests/kernels/codec_support.h"

namespace keel {
namespace {

using namespace testing;

struct Coded {
  std::vector<double> rest, carried;
  Tensor payload;
};

Coded code(const Context& context, const std::vector<double>& values, std::int64_t parts, const Codec& codec) {
  const auto count = static_cast<std::int64_t>(values.size()) / parts;
  const Tensor numbers = tensor_of(context, values, {parts, count});
  const Tensor payload = empty(context, {parts, codec.bytes(count)}, DType::u8);
  kernels::encode({numbers, payload, codec});
  const Tensor carried = zeros(context, {parts, count});
  kernels::decode_add({carried, payload, codec});
  return {doubles(numbers), doubles(carried), payload};
}

TEST(Codec, SendsWhatItsFormulaSays) {
  EXPECT_EQ(kInt8Codec.bytes(0), 0);
  EXPECT_EQ(kInt8Codec.bytes(1), 5);
  EXPECT_EQ(kInt8Codec.bytes(256), 260);
  EXPECT_EQ(kInt8Codec.bytes(257), 265);
  EXPECT_EQ(kInt4Codec.bytes(0), 0);
  EXPECT_EQ(kInt4Codec.bytes(1), 5);
  EXPECT_EQ(kInt4Codec.bytes(128), 132);
  EXPECT_EQ(kInt4Codec.bytes(256), 132);
  EXPECT_EQ(kInt4Codec.bytes(257), 137);
  EXPECT_EQ(top(0.01).bytes(1000), 80);
  EXPECT_EQ(top(0.01).bytes(1001), 88) << "rounded up";
  EXPECT_EQ(top(1e-9).bytes(1000), 8) << "one at least";
  EXPECT_EQ(top(1).bytes(1000), 8000);
  EXPECT_EQ((Codec{.kind = Codec::Kind::top_k, .number = 7}.bytes(100)), 56) << "and not what 0.07 rounds up to";
  EXPECT_EQ((Codec{.kind = Codec::Kind::top_k, .number = 7}.bytes(5)), 40);
  EXPECT_EQ(top_2bit(1.0 / 64).bytes(4096), 8 + 64 * (12 + 2) / 8);
  EXPECT_EQ(top_2bit(1.0 / 64).bytes(4097), 8 + (65 * (13 + 2) + 7) / 8) << "a place has a bit more";
  EXPECT_EQ(top_2bit(1).bytes(1), 8 + 1) << "a class and a sign";
  EXPECT_EQ(top_2bit(1).bytes(0), 0);
  EXPECT_THROW(top(0).bytes(10), Error);
  EXPECT_THROW(top(1.5).bytes(10), Error);
}

TEST(Codec, WhatIsSentAndWhatIsLeftAddUpToTheBit) {
  for (const Codec& codec : {kInt8Codec, kInt4Codec, top(0.01), top(0.3), top(1)})
    for (const std::int64_t count : {1, 255, 256, 257, 1000}) {
      const std::vector<double> values = mixed(3 * count, static_cast<std::uint64_t>(count));
      const Coded coded = code(context(), values, 3, codec);
      for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(coded.rest[i] + coded.carried[i], values[i]) << i;
    }
}

TEST(Codec, Int8AndInt4AreHalfAScaleOffAtMost) {
  for (const auto& [count, codec] : std::vector<std::pair<std::int64_t, Codec>>{{1, kInt8Codec},
                                                                                {256, kInt8Codec},
                                                                                {700, kInt8Codec},
                                                                                {1, kInt4Codec},
                                                                                {130, kInt4Codec},
                                                                                {700, kInt4Codec}}) {
    const std::vector<double> values = mixed(count, 5);
    const Coded coded = code(context(), values, 1, codec);
    for (std::size_t block = 0; block < values.size(); block += Codec::kBlock) {
      const std::size_t end = std::min(values.size(), block + Codec::kBlock);
      double largest = 0;
      for (std::size_t i = block; i < end; ++i) largest = std::max(largest, std::abs(values[i]));
      const double scale = largest / (codec.kind == Codec::Kind::int8 ? 127 : 7);
      for (std::size_t i = block; i < end; ++i)
        ASSERT_LE(std::abs(coded.rest[i]), scale / 2 * (1 + 1e-5)) << i << ": more than rounding in fp32 explains";
    }
  }
}

TEST(Codec, TopKKeepsTheLargestAndOfEqualOnesTheFirst) {
  for (const auto& [count, fraction] : std::vector<std::pair<std::int64_t, double>>{
           {1000, 0.001}, {1000, 0.05}, {1000, 0.5}, {1000, 0.99}, {9000, 0.001}, {9000, 0.3}, {9000, 0.99}}) {
    const std::vector<double> values = mixed(count, 9);
    const Coded coded = code(context(), values, 1, top(fraction));
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return std::abs(values[a]) > std::abs(values[b]); });
    const auto kept = static_cast<std::size_t>(top(fraction).kept(count));
    for (std::size_t i = 0; i < order.size(); ++i)
      ASSERT_EQ(coded.carried[order[i]], i < kept ? values[order[i]] : 0) << i << " of " << kept;
  }
}

// By its definition, in double precision.
TEST(Codec, TwoBitsSendSignsAndTheMeansOfTwoClassesOfSizes) {
  for (const auto& [count, fraction] : std::vector<std::pair<std::int64_t, double>>{
           {1, 1}, {2, 1}, {100, 0.3}, {256, 1}, {1000, 0.03}, {4097, 0.02}, {9000, 1}}) {
    const std::vector<double> values = mixed(count, 11);
    const Coded largest = code(context(), values, 1, top(fraction));
    const Coded coded = code(context(), values, 1, top_2bit(fraction));
    const auto kept = static_cast<double>(top(fraction).kept(count));
    double sum = 0, sums[2] = {}, counts[2] = {};
    for (const double value : largest.carried) sum += std::abs(value);
    const auto is_larger = [&](double value) { return std::abs(value) * kept > sum * (1 + 1e-9); };
    for (const double value : largest.carried) sums[is_larger(value)] += std::abs(value);
    for (const double value : largest.carried) counts[is_larger(value)] += 1;
    counts[0] -= static_cast<double>(count) - kept;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool is_kept = fraction == 1 || largest.carried[i] != 0, larger = is_larger(values[i]);
      const double level = is_kept ? sums[larger] / counts[larger] : 0;
      ASSERT_NEAR(coded.carried[i], std::copysign(level, values[i]), 1e-6 * level) << i << " of " << count;
      ASSERT_EQ(coded.rest[i], static_cast<float>(values[i] - coded.carried[i])) << i;
    }
  }
}

TEST(Codec, TwoBitsSendNumbersOfOneSizeExactly) {
  std::vector<double> values(300, 0);
  for (std::size_t i = 0; i < values.size(); i += 7) values[i] = i % 2 == 0 ? 0.1F : -0.1F;
  EXPECT_EQ(code(context(), values, 1, top_2bit(43.0 / 300)).carried, values);
}

TEST(Codec, WhatIsNotFiniteArrivesAsSuch) {
  for (const double bad :
       {std::nan(""), std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()})
    for (const Codec& codec : {kInt8Codec, kInt4Codec, top(0.01), top_2bit(0.01)}) {
      std::vector<double> values = mixed(600, 3);
      values[300] = bad;
      EXPECT_FALSE(std::isfinite(code(context(), values, 1, codec).carried[300]));
    }
}

TEST(Codec, GivesTheSameBytesOnAnyNumberOfThreads) {
  const std::vector<double> values = mixed(4 * 30'000, 1);
  for (const Codec& codec : {kInt8Codec, kInt4Codec, top(0.02), top_2bit(0.02)}) {
    const Coded one = code(context(1), values, 4, codec), four = code(context(4), values, 4, codec);
    EXPECT_EQ(one.payload.to_vector<std::uint8_t>(), four.payload.to_vector<std::uint8_t>());
    EXPECT_EQ(one.carried, four.carried);
  }
}

TEST(Codec, RefusesAPayloadThatNamesNoElement) {
  const Context cpu = context(1);
  const Tensor payload = zeros(cpu, {1, 8}, DType::u8), numbers = zeros(cpu, {1, 10});
  const std::uint32_t place = 10;
  std::memcpy(payload.raw(), &place, 4);
  EXPECT_THROW(kernels::decode_add({numbers, payload, top(0.1)}), Error);
  EXPECT_THROW(kernels::decode_add({numbers, payload, kInt8Codec}), Error) << "of another length";
  const Tensor packed = zeros(cpu, {1, top_2bit(0.1).bytes(10)}, DType::u8);
  packed.data<std::uint8_t>()[8] = 10;
  EXPECT_THROW(kernels::decode_add({numbers, packed, top_2bit(0.1)}), Error);
  EXPECT_THROW(kernels::encode({zeros(cpu, {1, 10}, DType::f64), payload, top(0.1)}), Error);
}

TEST(Orthonormalise, MakesColumnsOfLengthOneThatAreAtRightAngles) {
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {5, 5}, {64, 3}, {300, 16}}) {
    const Tensor x = uniform_tensor(context(), {rows, columns}, 4);
    kernels::orthonormalise(x);
    const std::vector<double> q = doubles(x);
    const auto n = static_cast<std::size_t>(columns);
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t b = 0; b < n; ++b) {
        double product = 0;
        for (std::size_t r = 0; r < q.size(); r += n) product += q[r + a] * q[r + b];
        ASSERT_NEAR(product, a == b ? 1 : 0, 1e-6) << a << ", " << b;
      }
  }
}

TEST(Orthonormalise, LeavesZerosForAColumnThatDependsOnOthersAndHidesNothingThatIsNotFinite) {
  expect_dependent_columns_are_zero(context());
}

TEST(FillEmptyRows, FillsThemFromTheStreamAndLeavesTheOthers) {
  constexpr std::int64_t kColumns = 37;
  std::vector<float> stream(4 * kColumns);
  fill_normal(stream, 5, "some name");
  std::vector<double> values(stream.size(), 0);
  values[kColumns] = 0.5;  // the second row has one number
  values[2 * kColumns] = std::nan("");
  const Tensor x = tensor_of(context(), values, {4, kColumns});
  kernels::fill_empty_rows(x, 5, "some name");
  const std::vector<double> filled = doubles(x);
  for (std::size_t i = 0; i < filled.size(); ++i) {
    const std::size_t row = i / kColumns;
    const bool is_empty = row == 0 || row == 3;
    if (i == 2 * kColumns) continue;
    EXPECT_EQ(filled[i], is_empty ? stream[i] : values[i]) << i;
  }
  EXPECT_TRUE(std::isnan(filled[2 * kColumns]));
}

}  // namespace
}  // namespace keel
