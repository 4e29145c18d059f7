#include "keel/runtime/tensor.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/support.h"

namespace keel {
namespace {

using testing::context;
using testing::doubles;

// 0, 1, 2, ... in row-major order.
Tensor counted(const Context& context, const Dims& shape) {
  std::vector<double> values(static_cast<std::size_t>(product(shape)));
  std::iota(values.begin(), values.end(), 0);
  return testing::tensor_of(context, values, shape);
}

TEST(Tensor, CopiesOfAHandleShareTheNumbers) {
  const Context cpu = context();
  const Tensor x = counted(cpu, {2, 3});
  const Tensor same = x;
  same.data<float>()[4] = 40;
  EXPECT_EQ(doubles(x), (std::vector<double>{0, 1, 2, 3, 40, 5}));
}

TEST(Tensor, TransposeTwiceAndInversePermutationsAreTheIdentity) {
  const Tensor x = counted(context(), {2, 3, 4});
  EXPECT_EQ(doubles(x.transpose(0, 2).transpose(0, 2)), doubles(x));
  EXPECT_EQ(doubles(x.permute({2, 0, 1}).permute({1, 2, 0})), doubles(x));
  const std::vector<double> turned = doubles(x.transpose(-1, -2));
  for (std::int64_t i = 0; i < 2; ++i)
    for (std::int64_t j = 0; j < 3; ++j)
      for (std::int64_t k = 0; k < 4; ++k)
        EXPECT_EQ(turned[static_cast<std::size_t>(i * 12 + k * 3 + j)], static_cast<double>(i * 12 + j * 4 + k));
}

TEST(Tensor, SelectIsASliceOfOneWithoutItsDimension) {
  const Tensor x = counted(context(), {3, 4, 5});
  for (int dim = -3; dim < 3; ++dim)
    for (std::int64_t i = 0; i < x.dim(dim); ++i)
      EXPECT_EQ(doubles(x.select(dim, i)), doubles(x.slice(dim, i, i + 1).squeeze(dim)));
}

TEST(Tensor, ViewsKeepTheOrderOfElementsAndNeverCopy) {
  const Tensor x = counted(context(), {4, 6});
  for (const Dims& shape : {Dims{24}, Dims{2, 12}, Dims{2, 2, 3, 2}, Dims{1, 24, 1}, Dims{-1, 8}, Dims{6, -1}}) {
    EXPECT_EQ(doubles(x.view(shape)), doubles(x));
    EXPECT_EQ(x.view(shape).storage(), x.storage());
  }
  // A slice of columns can still be split, and rows joined where they are dense, but not across the gap.
  const Tensor columns = x.slice(1, 0, 4);
  EXPECT_EQ(doubles(columns.view({4, 2, 2})), doubles(columns));
  EXPECT_EQ(doubles(columns.view({2, 2, 4})), doubles(columns));
  EXPECT_THROW(columns.view({16}), Error);
  EXPECT_THROW(x.transpose(0, 1).view({24}), Error);
  EXPECT_THROW(x.view({5, 5}), Error);
  EXPECT_THROW(x.view({-1, -1}), Error);
  EXPECT_THROW(x.view({-1, 7}), Error);
}

TEST(Tensor, ExpandRepeatsWithoutMemory) {
  const Tensor x = counted(context(), {3, 1});
  const Tensor wide = x.expand({2, 3, 4});
  EXPECT_EQ(wide.storage(), x.storage());
  EXPECT_EQ(wide.strides(), (Dims{0, 1, 0}));
  const std::vector<double> values = doubles(wide);
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(values[i], static_cast<double>(i / 4 % 3));
  EXPECT_THROW(x.expand({4, 4}), Error);
  EXPECT_THROW(x.expand({3}), Error);
}

TEST(Tensor, UnsqueezeAndSqueezeUndoEachOther) {
  const Tensor x = counted(context(), {2, 3}).transpose(0, 1);
  for (int dim = -3; dim < 3; ++dim) {
    EXPECT_EQ(x.unsqueeze(dim).squeeze(dim).strides(), x.strides());
    EXPECT_EQ(doubles(x.unsqueeze(dim)), doubles(x));
  }
  EXPECT_THROW(x.squeeze(0), Error);
  EXPECT_THROW(x.unsqueeze(3), Error);
}

TEST(Tensor, ContiguityIgnoresExtentsOfOneAndHoldsForNothing) {
  const Tensor x = counted(context(), {4, 1, 6});
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_TRUE(x.transpose(0, 1).is_contiguous());
  EXPECT_FALSE(x.transpose(0, 2).is_contiguous());
  EXPECT_TRUE(x.slice(0, 1, 3).is_contiguous());
  EXPECT_FALSE(x.slice(2, 1, 3).is_contiguous());
  EXPECT_TRUE(x.slice(2, 3, 3).is_contiguous());
}

TEST(Tensor, RefusesViewsThatLeaveTheStorageAndWrongIndices) {
  const Context cpu = context();
  const Tensor x = counted(cpu, {3, 4});
  EXPECT_THROW(Tensor(x.storage(), {3, 4}, {4, 1}, 1, DType::f32), Error);
  EXPECT_THROW(Tensor(x.storage(), {3, 4}, {5, 1}, 0, DType::f32), Error);
  EXPECT_THROW(Tensor(x.storage(), {3, 4}, {4, -1}, 0, DType::f32), Error);
  EXPECT_THROW(Tensor(x.storage(), {3, 4}, {4}, 0, DType::f32), Error);
  EXPECT_THROW(x.slice(0, 2, 4), Error);
  EXPECT_THROW(x.slice(0, 2, 1), Error);
  EXPECT_THROW(x.select(1, 4), Error);
  EXPECT_THROW(x.dim(2), Error);
  EXPECT_THROW(x.dim(-3), Error);
  EXPECT_THROW(x.permute({0, 0}), Error);
  EXPECT_THROW(x.data<double>(), Error);
  EXPECT_THROW(x.to_vector<bf16>(), Error);
  EXPECT_THROW(x.item(), Error);
  EXPECT_THROW(empty(cpu, {2, -1}), Error);
  EXPECT_THROW(empty(cpu, {std::int64_t{1} << 62, 4}), Error);  // so many that they count as 0
  EXPECT_THROW(empty(cpu, {(std::int64_t{1} << 61) + 1}), Error);
  EXPECT_THROW(Dims({1, 1, 1, 1, 1, 1, 1, 1, 1}), Error);
}

TEST(Tensor, ScalarsAndEmptyTensorsAreOrdinary) {
  const Context cpu = context();
  EXPECT_EQ(counted(cpu, {}).numel(), 1);
  EXPECT_EQ(counted(cpu, {}).item(), 0);
  EXPECT_EQ(counted(cpu, {3, 0}).numel(), 0);
  EXPECT_EQ(doubles(counted(cpu, {3, 0}).transpose(0, 1)), std::vector<double>());
  EXPECT_FALSE(Tensor().defined());
}

TEST(Tensor, AdoptsTheCallersMemoryAndReturnsItOnce) {
  std::vector<double> field(20);
  std::iota(field.begin(), field.end(), 0);
  int returned = 0;
  {
    const Tensor all = from_external(context(), field.data(), {3, 4}, {5, 1}, DType::f64, [&](void* memory) {
      EXPECT_EQ(memory, field.data());
      ++returned;
    });
    const Tensor part = all.slice(0, 1, 3);
    EXPECT_EQ(doubles(part), (std::vector<double>{5, 6, 7, 8, 10, 11, 12, 13}));
    part.data<double>()[0] = -1;
    EXPECT_EQ(returned, 0);
  }
  EXPECT_EQ(returned, 1);
  EXPECT_EQ(field[5], -1);
}

}  // namespace
}  // namespace keel
