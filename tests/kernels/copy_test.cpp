#include <gtest/gtest.h>

#include "keel/kernels/elementwise.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::context;
using testing::doubles;
using testing::kAllTypes;

// Small whole numbers, which every dtype holds exactly.
Tensor counted(const Context& context, const Dims& shape, DType dtype) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < product(shape); ++i) values.push_back(static_cast<double>(i * 7 % 101));
  return testing::tensor_of(context, values, shape, dtype);
}

TEST(Copy, MovesEveryDtypeToEveryDtypeInEveryLayout) {
  const Context cpu = context();
  for (const DType from : kAllTypes)
    for (const DType to : kAllTypes) {
      const Tensor x = counted(cpu, {5, 37, 67}, from);
      for (const Tensor& source : {x, x.transpose(1, 2), x.permute({2, 0, 1}), x.slice(2, 3, 40), x.slice(1, 2, 3),
                                   x.select(2, 4), x.select(0, 1).unsqueeze(1).expand({37, 3, 67})}) {
        const std::vector<double> expected = doubles(source);
        EXPECT_EQ(doubles(kernels::cast(source, to)), expected) << from << " to " << to << ' ' << source.strides();
        // Into a transposed target as well.
        Dims turned = source.shape();
        std::swap(turned[0], turned[source.rank() - 1]);
        const Tensor target = zeros(cpu, turned, to).transpose(0, -1);
        kernels::copy_into(target, source);
        EXPECT_EQ(doubles(target), expected) << from << " to transposed " << to;
      }
    }
}

TEST(Copy, TurnsMatricesOfManyTilesAndWhatIsLeftAtTheirEdges) {
  const Context cpu = context();
  for (const DType dtype : kAllTypes) {
    const std::int64_t rows = 301, columns = 531;
    const Tensor x = counted(cpu, {rows, columns}, dtype);
    const std::vector<double> before = doubles(x), turned = doubles(kernels::contiguous(x.transpose(0, 1)));
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        wrong += turned[static_cast<std::size_t>(j * rows + i)] != before[static_cast<std::size_t>(i * columns + j)];
    EXPECT_EQ(wrong, 0) << dtype;
  }
}

TEST(Copy, WritesOnlyTheViewItWasGiven) {
  const Context cpu = context();
  const Tensor whole = kernels::full(cpu, {6, 50, 40}, -1);
  const Tensor view = whole.slice(1, 5, 45).slice(2, 1, 39).transpose(1, 2);
  const Tensor source = counted(cpu, view.shape(), DType::f32);
  kernels::copy_into(view, source);
  EXPECT_EQ(doubles(view), doubles(source));
  double sum = 0, expected = 0;
  for (const double value : doubles(whole)) sum += value;
  for (const double value : doubles(source)) expected += value;
  EXPECT_EQ(sum, expected - static_cast<double>(whole.numel() - view.numel()));
}

TEST(Copy, BroadcastsAndCountsAsAWrite) {
  const Context cpu = context();
  const Tensor to = empty(cpu, {3, 4});
  const std::uint64_t version = to.storage()->version();
  kernels::copy_into(to, testing::tensor_of(cpu, {1, 2, 3, 4}, {4}));
  EXPECT_EQ(doubles(to), (std::vector<double>{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}));
  EXPECT_EQ(to.storage()->version(), version + 1);
  EXPECT_THROW(kernels::copy_into(to, empty(cpu, {3})), Error);
  EXPECT_THROW(kernels::copy_into(empty(cpu, {4}).expand({3, 4}), to), Error);
}

TEST(Copy, KeepsIntegersAndNanBitsThatAFloatWouldLose) {
  const Context cpu = context();
  const std::int64_t large = (std::int64_t{1} << 62) + 3;
  const Tensor i64 = from_values(cpu, std::vector<std::int64_t>{large, -5}, {2});
  EXPECT_EQ(kernels::clone(i64).to_vector<std::int64_t>()[0], large);
  const Tensor i32 = from_values(cpu, std::vector<std::int32_t>{2147483647, -2147483647}, {2});
  EXPECT_EQ(doubles(kernels::cast(i32, DType::f64)), doubles(i32));
  EXPECT_EQ(doubles(kernels::cast(i32, DType::i64)), doubles(i32));
  const Tensor f32 = testing::tensor_of(cpu, {NAN, INFINITY, -2.75}, {3});
  EXPECT_TRUE(std::isnan(doubles(kernels::cast(f32, DType::bf16))[0]));
  EXPECT_EQ(doubles(kernels::cast(f32, DType::f16))[1], INFINITY);
  EXPECT_EQ(doubles(kernels::cast(f32.slice(0, 2, 3), DType::i32))[0], -2);
}

TEST(Copy, IsFreeWhereNothingChanges) {
  const Context cpu = context();
  const Tensor x = empty(cpu, {3, 4});
  EXPECT_EQ(kernels::cast(x, DType::f32).storage(), x.storage());
  EXPECT_EQ(kernels::contiguous(x).storage(), x.storage());
  EXPECT_NE(kernels::contiguous(x.transpose(0, 1)).storage(), x.storage());
  EXPECT_NE(kernels::clone(x).storage(), x.storage());
}

TEST(Copy, FillReachesEveryElementOfAViewAndNoOther) {
  const Context cpu = context();
  for (const DType dtype : kAllTypes) {
    const Tensor x = zeros(cpu, {70, 90}, dtype);
    kernels::fill(x.transpose(0, 1).slice(0, 10, 80), 3);
    const std::vector<double> values = doubles(x);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], i % 90 >= 10 && i % 90 < 80 ? 3 : 0) << dtype << ' ' << i;
    EXPECT_EQ(doubles(kernels::full(cpu, {2}, 5, dtype)), (std::vector<double>{5, 5}));
  }
  EXPECT_THROW(kernels::fill(empty(cpu, {1}).expand({4}), 1), Error);
}

TEST(Where, ChoosesByConditionWithBroadcast) {
  const Context cpu = context();
  for (const DType dtype : kAllTypes) {
    const Tensor condition = testing::tensor_of(cpu, {1, 0, 1, 0, 0, 7}, {2, 3}, DType::u8);
    const Tensor a = testing::tensor_of(cpu, {1, 2, 3}, {3}, dtype), b = testing::tensor_of(cpu, {9, 8}, {2, 1}, dtype);
    EXPECT_EQ(doubles(kernels::where(condition, a, b)), (std::vector<double>{1, 9, 3, 8, 8, 3})) << dtype;
    EXPECT_EQ(kernels::where(condition, a, b).dtype(), dtype);
  }
  const Tensor x = empty(cpu, {2});
  EXPECT_THROW(kernels::where(x, x, x), Error);
  EXPECT_THROW(kernels::where(zeros(cpu, {2}, DType::u8), x, empty(cpu, {2}, DType::f64)), Error);
}

TEST(Accumulate, AddsNarrowNumbersIntoWideOnesWithoutRounding) {
  const Context cpu = context();
  for (const DType from : {DType::f32, DType::bf16, DType::f16, DType::f64})
    for (const DType to : {DType::f32, DType::f64}) {
      const Tensor into = testing::uniform_tensor(cpu, {3, 70, 90}, 1, to);
      const Tensor x = testing::uniform_tensor(cpu, {3, 90, 70}, 2, from).transpose(1, 2);
      std::vector<double> expected = doubles(into);
      const std::vector<double> added = doubles(x);
      for (std::size_t i = 0; i < added.size(); ++i) {
        expected[i] += added[i];
        if (to == DType::f32) expected[i] = static_cast<float>(expected[i]);
      }
      kernels::accumulate(into, x);
      EXPECT_EQ(doubles(into), expected) << from << " into " << to;
    }
  const Tensor counts = counted(cpu, {4}, DType::i64);
  kernels::accumulate(counts, counts);
  EXPECT_EQ(doubles(counts)[1], 14);
  EXPECT_THROW(kernels::accumulate(counts, empty(cpu, {4})), Error);
  EXPECT_THROW(kernels::accumulate(empty(cpu, {3}), empty(cpu, {4})), Error);
}

TEST(Scale, MultipliesInPlaceThroughAnyView) {
  const Context cpu = context();
  const Tensor x = counted(cpu, {40, 60}, DType::bf16);
  std::vector<double> expected = doubles(x.transpose(0, 1));
  for (double& value : expected) value *= 0.5;
  kernels::scale(x.transpose(0, 1), 0.5);
  EXPECT_EQ(doubles(x.transpose(0, 1)), expected);
  EXPECT_EQ(x.storage()->version(), 1u);
  EXPECT_THROW(kernels::scale(counted(cpu, {4}, DType::i32), 2), Error);
}

TEST(Concat, UndoesASplitAlongEveryDimension) {
  const Context cpu = context();
  for (const DType dtype : {DType::f32, DType::bf16, DType::i64})
    for (int dim = -3; dim < 3; ++dim) {
      const Tensor x = counted(cpu, {9, 10, 11}, dtype).permute({1, 0, 2});
      const std::int64_t end = x.dim(dim);
      const std::vector<Tensor> parts = {x.slice(dim, 0, 2), x.slice(dim, 2, 2), x.slice(dim, 2, end)};
      const Tensor joined = kernels::concat(parts, dim);
      EXPECT_EQ(joined.shape(), x.shape());
      EXPECT_EQ(doubles(joined), doubles(x)) << dtype << " dim " << dim;
    }
  EXPECT_THROW(kernels::concat({}, 0), Error);
  const std::vector<Tensor> unequal = {empty(cpu, {2, 3}), empty(cpu, {2, 4})};
  EXPECT_THROW(kernels::concat(unequal, 0), Error);
  EXPECT_EQ(kernels::concat(unequal, 1).shape(), (Dims{2, 7}));
}

}  // namespace
}  // namespace keel
