// Adding up what the ranks of a collective sent.

#include "keel/kernels/combine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support.h"

namespace keel {
namespace {

using namespace keel::testing;

std::vector<Tensor> terms_of(const Context& cpu, std::size_t terms, std::int64_t count, DType dtype) {
  std::vector<Tensor> all;
  for (std::size_t t = 0; t < terms; ++t) {
    const bool whole = !is_floating(dtype);
    all.push_back(uniform_tensor(cpu, {count}, 31 * t + 7, dtype, whole ? 0 : -1, whole ? 20 : 1));
  }
  return all;
}

// From left to right, in what the header promises.
std::vector<double> expected(const std::vector<Tensor>& terms, DType out) {
  std::vector<double> sums = doubles(terms.front());
  const bool in_fp32 = is_floating(terms.front().dtype()) && terms.front().dtype() != DType::f64;
  for (std::size_t t = 1; t < terms.size(); ++t) {
    const std::vector<double> term = doubles(terms[t]);
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] =
          in_fp32 ? static_cast<double>(static_cast<float>(sums[i]) + static_cast<float>(term[i])) : sums[i] + term[i];
  }
  return doubles(tensor_of(terms.front().context(), sums, terms.front().shape(), out));
}

TEST(Combine, AddsFromLeftToRightInFp32AndRoundsOnce) {
  const Context cpu = context();
  for (const DType dtype : kAllTypes) {
    for (const std::size_t terms : {1, 2, 3, 8, 70}) {
      for (const std::int64_t count : {0, 1, 7, 1024, 50'001}) {
        if (dtype == DType::u8 && terms > 8) continue;  // the sums would not fit
        SCOPED_TRACE(concat(dtype, ", ", terms, " terms of ", count));
        const std::vector<Tensor> all = terms_of(cpu, terms, count, dtype);
        const Tensor out = empty(cpu, {count}, dtype);
        kernels::combine({all, out});
        EXPECT_EQ(doubles(out), expected(all, dtype));
      }
    }
  }
}

// In double precision, of numbers for which that is exact but for the one rounding.
TEST(Combine, MultipliesAndDividesTheSumOnce) {
  const Context cpu = context();
  for (const DType dtype : kAllTypes)
    for (const std::size_t terms : {1, 2, 3, 7, 70}) {
      SCOPED_TRACE(concat(dtype, ", ", terms, " terms"));
      constexpr std::int64_t kCount = 2'051;
      std::vector<Tensor> all;
      std::vector<double> products(kCount, 1), sums(kCount, 0);
      for (std::size_t t = 0; t < terms; ++t) {
        std::vector<double> values;
        for (std::size_t i = 0; i < kCount; ++i) {
          values.push_back(static_cast<double>((i + t) % 16 == 0 ? 2 : 1));
          products[i] *= values.back();
          sums[i] += values.back();
        }
        all.push_back(tensor_of(cpu, values, {kCount}, dtype));
      }
      const Tensor product = empty(cpu, {kCount}, dtype), mean = empty(cpu, {kCount}, dtype);
      kernels::combine({all, product, CombineOp::product});
      EXPECT_EQ(doubles(product), products);
      const auto divided = [&](double by) {
        std::vector<double> quotients;
        for (const double sum : sums)
          quotients.push_back(is_floating(dtype) && dtype != DType::f64
                                  ? static_cast<float>(sum) / static_cast<float>(by)
                              : is_floating(dtype) ? sum / by
                                                   : std::trunc(sum / by));
        return doubles(tensor_of(cpu, quotients, {kCount}, dtype));
      };
      kernels::combine({all, mean, CombineOp::mean});
      EXPECT_EQ(doubles(mean), divided(static_cast<double>(terms)));
      kernels::combine({all, mean, CombineOp::mean, 3});
      EXPECT_EQ(doubles(mean), divided(3));
    }
}

TEST(Combine, AddsWholeNumbersIn64BitsForAMeanAndRoundsTowardsZero) {
  const Context cpu = context();
  const std::vector<Tensor> small = {tensor_of(cpu, {200, 255, 7}, {3}, DType::u8),
                                     tensor_of(cpu, {100, 255, 8}, {3}, DType::u8)};
  const Tensor out = empty(cpu, {3}, DType::u8);
  kernels::combine({small, out, CombineOp::mean});
  EXPECT_EQ(doubles(out), (std::vector<double>{150, 255, 7}));
  constexpr double kLargest = 2147483647;
  const std::vector<Tensor> large = {tensor_of(cpu, {kLargest, -3}, {2}, DType::i32),
                                     tensor_of(cpu, {kLargest, -4}, {2}, DType::i32)};
  const Tensor mean = empty(cpu, {2}, DType::i32);
  kernels::combine({large, mean, CombineOp::mean});
  EXPECT_EQ(doubles(mean), (std::vector<double>{kLargest, -3}));
  kernels::combine({large, mean, CombineOp::product});
  EXPECT_EQ(doubles(mean), (std::vector<double>{1, 12})) << "(2^31 - 1)^2 modulo 2^32";
  EXPECT_THROW(kernels::combine({large, mean, CombineOp::mean, -1}), Error);
}

TEST(Combine, KeepsTheFp32SumOfNarrowTerms) {
  const Context cpu = context();
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const std::vector<Tensor> all = terms_of(cpu, 5, 3'001, dtype);
    const Tensor out = empty(cpu, {3'001});
    kernels::combine({all, out});
    EXPECT_EQ(doubles(out), expected(all, DType::f32));
  }
}

TEST(Combine, MayWriteOverOneOfItsTerms) {
  const Context cpu = context();
  for (const std::size_t target : {0, 1, 2}) {
    const std::vector<Tensor> all = terms_of(cpu, 3, 20'000, DType::bf16);
    const std::vector<double> sums = expected(all, DType::bf16);
    kernels::combine({all, all[target]});
    EXPECT_EQ(doubles(all[target]), sums);
  }
}

// The tree as its definition says: level by level, and what has no neighbour goes up.
std::vector<float> tree_sum(std::vector<std::vector<float>> level) {
  while (level.size() > 1) {
    std::vector<std::vector<float>> above;
    for (std::size_t t = 0; t < level.size(); t += 2) {
      above.push_back(level[t]);
      if (t + 1 == level.size()) continue;
      for (std::size_t i = 0; i < level[t].size(); ++i) above.back()[i] += level[t + 1][i];
    }
    level = std::move(above);
  }
  return level.front();
}

TEST(Combine, AddsPairsAndThenPairsOfSums) {
  const Context cpu = context();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::size_t terms : {1, 2, 3, 4, 6, 7, 8, 64, 65, 70})
      for (const std::int64_t count : {0, 1, 5'001}) {
        SCOPED_TRACE(concat(dtype, ", ", terms, " terms of ", count));
        const std::vector<Tensor> all = terms_of(cpu, terms, count, dtype);
        std::vector<std::vector<float>> numbers;
        for (const Tensor& each : all) {
          const std::vector<double> values = doubles(each);
          numbers.emplace_back(values.begin(), values.end());
        }
        const std::vector<float> sums = tree_sum(numbers);
        const Tensor out = empty(cpu, {count});
        kernels::combine({all, out, CombineOp::pairwise_sum});
        EXPECT_EQ(doubles(out), std::vector<double>(sums.begin(), sums.end()));
        kernels::combine({all, all.back(), CombineOp::pairwise_sum});
        EXPECT_EQ(doubles(all.back()), doubles(tensor_of(cpu, {sums.begin(), sums.end()}, {count}, dtype)))
            << "over one of its terms";
      }
}

TEST(Combine, NanWinsInMaximumAndMinimum) {
  const Context cpu = context();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Tensor> all = {tensor_of(cpu, {1, nan, -3, 4}, {4}), tensor_of(cpu, {2, 0, nan, -4}, {4})};
  const Tensor out = empty(cpu, {4});
  kernels::combine({all, out, CombineOp::maximum});
  const std::vector<double> largest = doubles(out);
  kernels::combine({all, out, CombineOp::minimum});
  const std::vector<double> smallest = doubles(out);
  EXPECT_EQ(largest[0], 2);
  EXPECT_EQ(smallest[0], 1);
  EXPECT_EQ(largest[3], 4);
  EXPECT_EQ(smallest[3], -4);
  for (const std::size_t i : {1, 2}) EXPECT_TRUE(std::isnan(largest[i]) && std::isnan(smallest[i]));
}

TEST(Combine, RefusesTermsThatDoNotFit) {
  const Context cpu = context();
  const std::vector<Tensor> all = {zeros(cpu, {4}), zeros(cpu, {5})};
  EXPECT_THROW(kernels::combine({all, zeros(cpu, {4})}), Error);
  EXPECT_THROW(kernels::combine({std::span(all).first(1), zeros(cpu, {4}, DType::bf16)}), Error);
  EXPECT_THROW(kernels::combine({{}, zeros(cpu, {4})}), Error);
}

}  // namespace
}  // namespace keel
