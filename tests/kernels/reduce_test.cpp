#include "keel/kernels/reduce.h"

#include <gtest/gtest.h>

#include <map>

#include "keel/kernels/elementwise.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::context;
using testing::doubles;
using testing::kFloats;

// The values that fall together when `dims` are reduced, in row-major order of the kept indices.
std::vector<std::vector<double>> groups(const Tensor& x, const Dims& dims) {
  const std::vector<double> values = doubles(x);
  std::map<std::vector<std::int64_t>, std::vector<double>> by_kept;
  Dims index(x.rank(), 0);
  for (const double value : values) {
    std::vector<std::int64_t> kept;
    for (int d = 0; d < x.rank(); ++d)
      if (std::find(dims.begin(), dims.end(), d) == dims.end()) kept.push_back(index[d]);
    by_kept[kept].push_back(value);
    for (int d = x.rank() - 1; d >= 0 && ++index[d] == x.shape()[d]; --d) index[d] = 0;
  }
  std::vector<std::vector<double>> result;
  for (auto& [kept, group] : by_kept) result.push_back(std::move(group));
  return result;
}

double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return 1e-6;
    case DType::bf16: return 0x1p-8;
    case DType::f16: return 0x1p-11;
    default: return 1e-14;
  }
}

void check_reductions(const Tensor& x, const Dims& dims) {
  std::vector<double> sums, sizes, means, largest, smallest;
  for (const std::vector<double>& group : groups(x, dims)) {
    double sum = 0, size = 0;
    for (const double value : group) sum += value, size += std::fabs(value);
    sums.push_back(sum);
    sizes.push_back(size);
    means.push_back(sum / static_cast<double>(group.size()));
    largest.push_back(*std::max_element(group.begin(), group.end()));
    smallest.push_back(*std::min_element(group.begin(), group.end()));
  }
  const std::vector<double> got = doubles(kernels::sum(x, dims)), got_mean = doubles(kernels::mean(x, dims));
  ASSERT_EQ(got.size(), sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double bound = rounding_of(x.dtype()) * std::fabs(sums[i]) + 1e-6 * sizes[i];
    const double count = static_cast<double>(x.numel()) / static_cast<double>(sums.size());
    EXPECT_NEAR(got[i], sums[i], bound) << "sum " << i;
    EXPECT_NEAR(got_mean[i], means[i], bound / count + (x.dtype() == DType::f16 ? 1e-7 : 0)) << "mean " << i;
  }
  EXPECT_EQ(doubles(kernels::max(x, dims)), largest);
  EXPECT_EQ(doubles(kernels::min(x, dims)), smallest);
}

TEST(Reduce, EqualsADoubleReferenceOverEverySetOfDimensionsInEveryLayout) {
  const Context cpu = context();
  for (const DType dtype : kFloats) {
    const Tensor x = testing::uniform_tensor(cpu, {7, 70, 33}, 3, dtype);
    const Tensor row = testing::uniform_tensor(cpu, {7, 1, 33}, 4, dtype);
    for (const Tensor& view :
         {x, x.permute({2, 0, 1}), x.permute({1, 2, 0}), x.slice(1, 3, 60).slice(2, 1, 30), row.expand({7, 70, 33})})
      for (const Dims& dims : {Dims{0}, Dims{1}, Dims{2}, Dims{0, 1}, Dims{0, 2}, Dims{1, 2}, Dims{0, 1, 2}}) {
        SCOPED_TRACE(concat(dtype, ' ', view.shape(), " strides ", view.strides(), " over ", dims));
        check_reductions(view, dims);
      }
  }
}

TEST(Reduce, LongRangesCrossChunksInBothDirections) {
  const Context cpu = context();
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    check_reductions(testing::uniform_tensor(cpu, {3, 40001}, 5, dtype), {1});
    check_reductions(testing::uniform_tensor(cpu, {1001, 600}, 6, dtype), {0});
    check_reductions(testing::uniform_tensor(cpu, {40001, 3}, 7, dtype), {0});
    check_reductions(testing::uniform_tensor(cpu, {5, 130, 520}, 8, dtype), {0, 1});
  }
}

TEST(Reduce, ShapesFollowKeep) {
  const Context cpu = context();
  const Tensor x = testing::uniform_tensor(cpu, {2, 3, 4}, 1);
  EXPECT_EQ(kernels::sum(x).shape(), Dims{});
  EXPECT_EQ(kernels::sum(x, {}, true).shape(), (Dims{1, 1, 1}));
  EXPECT_EQ(kernels::sum(x, {-1, 0}).shape(), (Dims{3}));
  EXPECT_EQ(kernels::max(x, {1}, true).shape(), (Dims{2, 1, 4}));
  EXPECT_EQ(kernels::argmax(x, -2).shape(), (Dims{2, 4}));
  EXPECT_EQ(kernels::sum(testing::tensor_of(cpu, {5}, {})).item(), 5);
  EXPECT_THROW(kernels::sum(x, {0, -3}), Error);
  EXPECT_THROW(kernels::sum(x, {3}), Error);
}

TEST(Reduce, BitsDoNotDependOnTheThreadCount) {
  const Context one = context(1), two = context(2), three = context(3);
  for (const DType dtype : kFloats)
    for (const Dims& dims : {Dims{0}, Dims{1}, Dims{0, 1}}) {
      const auto bits = [&](const Context& context, auto reduction) {
        return doubles(reduction(testing::uniform_tensor(context, {701, 903}, 9, dtype), dims));
      };
      const auto sum = [](const Tensor& x, const Dims& over) { return kernels::sum(x, over); };
      EXPECT_EQ(bits(one, sum), bits(two, sum));
      EXPECT_EQ(bits(one, sum), bits(three, sum));
    }
}

TEST(Reduce, AMillionEqualNumbersSumWithoutDrift) {
  const Context cpu = context();
  const Tensor x = kernels::full(cpu, {1 << 20}, 0.1);
  const double exact = static_cast<double>(0.1f) * (1 << 20);
  EXPECT_NEAR(kernels::sum(x).item() / exact, 1, 3e-7);
  EXPECT_NEAR(kernels::sum(x.view({1 << 14, 64}), {0}).to_vector<float>()[5] / (exact / 64), 1, 3e-7);
}

TEST(Reduce, IntegersSumIn64Bits) {
  const Context cpu = context();
  for (const DType dtype : {DType::i32, DType::i64, DType::u8}) {
    const Tensor x = kernels::full(cpu, {100, 70}, 200, dtype);
    EXPECT_EQ(kernels::sum(x).dtype(), DType::i64);
    EXPECT_EQ(kernels::sum(x).item(), 1400000) << dtype;
    EXPECT_EQ(doubles(kernels::sum(x, {0})), std::vector<double>(70, 20000));
    EXPECT_EQ(kernels::max(x).dtype(), dtype);
    EXPECT_EQ(kernels::max(x).item(), 200);
    EXPECT_THROW(kernels::mean(x), Error);
  }
}

TEST(Reduce, NanIsLargestAndSmallest) {
  const Context cpu = context();
  for (const int at : {0, 5, 17, 2000}) {
    std::vector<double> values = testing::uniform(3000, 2);
    values[static_cast<std::size_t>(at)] = NAN;
    const Tensor x = testing::tensor_of(cpu, values, {3000});
    EXPECT_TRUE(std::isnan(kernels::max(x).item()));
    EXPECT_TRUE(std::isnan(kernels::min(x).item()));
    EXPECT_TRUE(std::isnan(kernels::sum(x).item()));
    EXPECT_EQ(kernels::argmax(x, 0).item(), at);
  }
}

TEST(Reduce, NothingSumsToZeroAndHasNoLargest) {
  const Context cpu = context();
  const Tensor x = empty(cpu, {3, 0, 2});
  EXPECT_EQ(doubles(kernels::sum(x, {1})), std::vector<double>(6, 0));
  EXPECT_TRUE(std::isnan(doubles(kernels::mean(x, {1}))[0]));
  EXPECT_EQ(kernels::sum(x, {0}).numel(), 0);
  EXPECT_EQ(kernels::max(x, {0}).numel(), 0);
  EXPECT_THROW(kernels::max(x, {1}), Error);
  EXPECT_THROW(kernels::argmax(x, 1), Error);
}

TEST(Argmax, FindsTheFirstLargestInEveryDtypeAndLayout) {
  const Context cpu = context();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u8}) {
    const Tensor x = testing::uniform_tensor(cpu, {6, 2500}, 12, dtype, 0, 200);  // narrow dtypes have many ties
    for (const Tensor& view : {x, x.transpose(0, 1), x.slice(1, 1, 30)})
      for (int dim = 0; dim < 2; ++dim) {
        std::vector<double> expected;
        for (const std::vector<double>& group : groups(view, {dim}))
          expected.push_back(static_cast<double>(std::max_element(group.begin(), group.end()) - group.begin()));
        EXPECT_EQ(doubles(kernels::argmax(view, dim)), expected) << dtype << " dim " << dim;
      }
  }
  const Tensor low = testing::tensor_of(cpu, {-INFINITY, -INFINITY}, {2});
  EXPECT_EQ(kernels::argmax(low, 0).item(), 0);
}

TEST(SumTo, UndoesABroadcast) {
  const Context cpu = context();
  const Tensor x = testing::uniform_tensor(cpu, {4, 5, 6}, 1);
  EXPECT_EQ(kernels::sum_to(x, x.shape()).storage(), x.storage());
  EXPECT_EQ(doubles(kernels::sum_to(x, {6})), doubles(kernels::sum(x, {0, 1})));
  EXPECT_EQ(doubles(kernels::sum_to(x, {5, 1})), doubles(kernels::sum(x, {0, 2})));
  EXPECT_EQ(kernels::sum_to(x, {1, 5, 1}).shape(), (Dims{1, 5, 1}));
  EXPECT_EQ(doubles(kernels::sum_to(x, {})), doubles(kernels::sum(x)));
  EXPECT_THROW(kernels::sum_to(x, {5, 5}), Error);
  EXPECT_THROW(kernels::sum_to(x, {1, 1, 1, 1}), Error);
}

TEST(SumRows, WritesOrAddsInTheDestinationsDtype) {
  const Context cpu = context();
  for (const DType dtype : kFloats)
    for (const DType to : {dtype, dtype == DType::f64 ? DType::f64 : DType::f32})
      for (const bool add : {false, true}) {
        const Tensor x = testing::uniform_tensor(cpu, {300, 700}, 1, dtype);
        const Tensor whole = testing::uniform_tensor(cpu, {720}, 2, to), into = whole.slice(0, 10, 710);
        std::vector<double> expected = add ? doubles(into) : std::vector<double>(700);
        const std::vector<double> before = doubles(whole), values = doubles(x);
        for (std::size_t i = 0; i < values.size(); ++i) expected[i % 700] += values[i];
        kernels::sum_rows(x, into, add);
        EXPECT_LT(testing::relative_error(doubles(into), expected), to == DType::f32 ? 1e-6 : 2 * rounding_of(to))
            << dtype << " to " << to << " add " << add;
        EXPECT_EQ(doubles(whole)[9], before[9]);
        EXPECT_EQ(doubles(whole)[710], before[710]);
        EXPECT_EQ(into.storage()->version(), 1u);
      }
  const Tensor x = testing::uniform_tensor(cpu, {3, 4}, 1);
  EXPECT_EQ(doubles(kernels::sum_rows(x)), doubles(kernels::sum(x, {0})));
  EXPECT_THROW(kernels::sum_rows(x, empty(cpu, {3})), Error);
  EXPECT_THROW(kernels::sum_rows(x, {}, true), Error);
  const Tensor kept = kernels::full(cpu, {4}, 2);
  kernels::sum_rows(empty(cpu, {0, 4}), kept, true);
  EXPECT_EQ(doubles(kept), std::vector<double>(4, 2));
}

}  // namespace
}  // namespace keel
