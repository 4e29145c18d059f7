// Reductions on a device, over any dimensions and layouts.

#include "keel/kernels/reduce.h"

#include <map>

#include "tests/cuda/device.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(ReduceOnDevice);

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

void check_reductions(const Tensor& x, const Dims& dims) {
  SCOPED_TRACE(concat(x, " strides ", x.strides(), " over ", dims));
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
  const Tensor sum = kernels::sum(x, dims);
  const std::vector<double> got = doubles(sum), got_mean = doubles(kernels::mean(x, dims));
  ASSERT_EQ(got.size(), sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double bound = rounding(x.dtype()) * std::fabs(sums[i]) + 1e-6 * sizes[i];
    const double count = static_cast<double>(x.numel()) / static_cast<double>(sums.size());
    ASSERT_NEAR(got[i], sums[i], bound) << "sum " << i;
    ASSERT_NEAR(got_mean[i], means[i], bound / count + (x.dtype() == DType::f16 ? 1e-7 : 0)) << "mean " << i;
  }
  EXPECT_EQ(doubles(kernels::max(x, dims)), largest);
  EXPECT_EQ(doubles(kernels::min(x, dims)), smallest);
  EXPECT_EQ(doubles(kernels::sum(x, dims)), doubles(sum));
}

TEST_P(ReduceOnDevice, EqualADoubleReferenceOverEverySetOfDimensionsInEveryLayout) {
  for (const DType dtype : kKernelTypes) {
    const Tensor x = uniform_tensor(device, {3, 20, 24}, 3, dtype);
    const Tensor row = uniform_tensor(device, {3, 1, 24}, 4, dtype);
    for (const Tensor& view :
         {x, x.permute({2, 0, 1}), x.permute({1, 2, 0}), x.slice(1, 3, 19).slice(2, 1, 20), row.expand({3, 20, 24})})
      for (const Dims& dims : {Dims{0}, Dims{1}, Dims{2}, Dims{0, 1}, Dims{0, 2}, Dims{1, 2}, Dims{0, 1, 2}})
        check_reductions(view, dims);
  }
}

TEST_P(ReduceOnDevice, LongRangesCrossChunksInBothDirections) {
  for (const DType dtype : kKernelTypes) {
    check_reductions(uniform_tensor(device, {2, 8192 + 1001}, 5, dtype), {1});
    check_reductions(uniform_tensor(device, {2, 8192 + 1000}, 5, dtype), {1});  // rows that packs fit
    check_reductions(uniform_tensor(device, {701, 40}, 6, dtype), {0});
    check_reductions(uniform_tensor(device, {701, 41}, 6, dtype), {0});
    check_reductions(uniform_tensor(device, {8200, 2}, 7, dtype), {0});
    check_reductions(uniform_tensor(device, {2, 33, 264}, 8, dtype), {0, 1});
    check_reductions(uniform_tensor(device, {600, 3, 17}, 9, dtype), {0});
    check_reductions(uniform_tensor(device, {5, 1100}, 10, dtype), {1});
    check_reductions(uniform_tensor(device, {300, 3}, 11, dtype), {1});
    check_reductions(uniform_tensor(device, {2, 300, 24}, 12, dtype), {1});
  }
}

TEST_P(ReduceOnDevice, ManyEqualNumbersSumWithoutDrift) {
  constexpr std::int64_t kCount = 1 << 16;
  const Tensor x = kernels::full(device, {kCount}, 0.1);
  const double exact = static_cast<double>(0.1f) * kCount;
  EXPECT_NEAR(kernels::sum(x).item() / exact, 1, 3e-7);
  EXPECT_NEAR(kernels::sum(x.view({kCount / 64, 64}), {0}).to_vector<float>()[5] / (exact / 64), 1, 3e-7);
}

TEST_P(ReduceOnDevice, IntegersSumIn64Bits) {
  for (const DType dtype : {DType::i32, DType::i64, DType::u8}) {
    const Tensor x = kernels::full(device, {100, 70}, 200, dtype);
    EXPECT_EQ(kernels::sum(x).dtype(), DType::i64);
    EXPECT_EQ(kernels::sum(x).item(), 1400000) << dtype;
    EXPECT_EQ(doubles(kernels::sum(x, {0})), std::vector<double>(70, 20000));
    EXPECT_EQ(doubles(kernels::sum(x, {1})), std::vector<double>(100, 14000));
    kernels::fill(x.slice(0, 3, 4).slice(1, 5, 6), 201);
    kernels::fill(x.slice(0, 7, 8), 3);
    EXPECT_EQ(kernels::max(x).dtype(), dtype);
    EXPECT_EQ(kernels::max(x).item(), 201);
    EXPECT_EQ(doubles(kernels::min(x, {0})), std::vector<double>(70, 3));
    EXPECT_EQ(kernels::min(x.slice(0, 0, 7)).item(), 200);
  }
}

TEST_P(ReduceOnDevice, NanIsLargestAndSmallest) {
  for (const int at : {0, 5, 17, 2000}) {
    std::vector<double> values = uniform(3000, 2);
    values[static_cast<std::size_t>(at)] = NAN;
    const Tensor x = tensor_of(device, values, {3000});
    EXPECT_TRUE(std::isnan(kernels::max(x).item()));
    EXPECT_TRUE(std::isnan(kernels::min(x).item()));
    EXPECT_TRUE(std::isnan(kernels::sum(x).item()));
    EXPECT_EQ(kernels::argmax(x, 0).item(), at);
    EXPECT_TRUE(std::isnan(doubles(kernels::max(x.view({100, 30}), {0}))[static_cast<std::size_t>(at % 30)]));
  }
}

TEST_P(ReduceOnDevice, ExtremaOfInfinitiesAreInfinite) {
  for (const DType dtype : kKernelTypes) {
    const Tensor low = kernels::full(device, {3, 40}, -INFINITY, dtype);
    EXPECT_EQ(kernels::max(low).item(), -INFINITY);
    EXPECT_EQ(doubles(kernels::max(low, {0})), std::vector<double>(40, -INFINITY));
    EXPECT_EQ(doubles(kernels::argmax(low, 1)), std::vector<double>(3, 0));
    EXPECT_EQ(kernels::min(kernels::full(device, {40}, INFINITY, dtype)).item(), INFINITY);
  }
}

TEST_P(ReduceOnDevice, NothingSumsToZeroAndHasNoLargest) {
  const Tensor x = empty(device, {3, 0, 2});
  EXPECT_EQ(doubles(kernels::sum(x, {1})), std::vector<double>(6, 0));
  EXPECT_TRUE(std::isnan(doubles(kernels::mean(x, {1}))[0]));
  EXPECT_EQ(kernels::sum(x, {0}).numel(), 0);
  EXPECT_THROW(kernels::max(x, {1}), Error);
}

TEST_P(ReduceOnDevice, ArgmaxFindsTheFirstLargestInEveryDtypeAndLayout) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8}) {
    const Tensor x = uniform_tensor(device, {9, 20, 37}, 3, dtype, 0, 7);  // integers repeat
    for (const Tensor& view : {x, x.transpose(0, 2), x.slice(2, 1, 30)})
      for (int dim = 0; dim < 3; ++dim) {
        std::vector<double> expected;
        for (const std::vector<double>& group : groups(view, {dim}))
          expected.push_back(static_cast<double>(std::max_element(group.begin(), group.end()) - group.begin()));
        EXPECT_EQ(doubles(kernels::argmax(view, dim)), expected) << dtype << view.strides() << dim;
      }
  }
  const Tensor many = uniform_tensor(device, {20, 4100}, 4, DType::bf16, 0, 3), tall = many.transpose(0, 1);
  EXPECT_EQ(doubles(kernels::argmax(many, 0)), doubles(kernels::argmax(kernels::contiguous(tall), 1)));
  EXPECT_EQ(doubles(kernels::argmax(many, 1)), doubles(kernels::argmax(kernels::contiguous(tall), 0)));
}

TEST_P(ReduceOnDevice, SumRowsWritesOrAddsInTheDestinationsDtype) {
  for (const DType dtype : kKernelTypes)
    for (const DType to : {dtype, DType::f32})
      for (const bool add : {false, true})
        for (const std::int64_t columns : {40, 41}) {
          const Tensor x = uniform_tensor(device, {300, columns}, 1, dtype);
          const Tensor whole = uniform_tensor(device, {columns + 20}, 2, to), into = whole.slice(0, 10, columns + 10);
          std::vector<double> expected = add ? doubles(into) : std::vector<double>(static_cast<std::size_t>(columns));
          const std::vector<double> before = doubles(whole), values = doubles(x);
          for (std::size_t i = 0; i < values.size(); ++i) expected[i % static_cast<std::size_t>(columns)] += values[i];
          kernels::sum_rows(x, into, add);
          EXPECT_LT(relative_error(doubles(into), expected), to == DType::f32 ? 1e-6 : 2 * rounding(to))
              << dtype << " to " << to << " add " << add;
          EXPECT_EQ(doubles(whole)[9], before[9]);
          EXPECT_EQ(doubles(whole).at(static_cast<std::size_t>(columns + 10)),
                    before.at(static_cast<std::size_t>(columns + 10)));
        }
  const Tensor kept = kernels::full(device, {4}, 2);
  kernels::sum_rows(empty(device, {0, 4}), kept, true);
  EXPECT_EQ(doubles(kept), std::vector<double>(4, 2));
}

TEST_P(ReduceOnDevice, RefuseFp64WithItsName) {
  try {
    kernels::max(empty(device, {2}, DType::f64));
    FAIL() << "fp64 arithmetic is not offered on a device";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(),
              concat("max in f64 is not implemented on ", device.device(), "; it takes f32, bf16 and f16"));
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
  }
}

}  // namespace
}  // namespace keel
