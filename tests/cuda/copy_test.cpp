// Copies, fills and in-place arithmetic on a device.

#include "keel/kernels/cuda/strides.h"
#include "tests/cuda/device.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(CopyOnDevice);

// Small whole numbers, which every dtype holds exactly.
Tensor counted(const Context& context, const Dims& shape, DType dtype) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < product(shape); ++i) values.push_back(static_cast<double>(i * 7 % 101));
  return tensor_of(context, values, shape, dtype);
}

TEST(Divisor, DividesEveryKindOfNumber) {
  for (const std::uint32_t divisor :
       {1u, 2u, 3u, 5u, 7u, 64u, 641u, 50257u, 65535u, 65536u, 65537u, 0x40000001u, 0x7ffffffeu, 0x7fffffffu}) {
    const cuda::Divisor by(divisor);
    for (const std::uint32_t at : {0u, 1u, 2u, 1000u, 0x12345678u, 0x3fffffffu, 0x7fffffffu})
      for (const std::uint32_t n : {at, at / divisor * divisor, at / divisor * divisor + divisor - 1})
        EXPECT_EQ(by.quotient(n & 0x7fffffffu), (n & 0x7fffffffu) / divisor) << n << " by " << divisor;
  }
}

TEST_P(CopyOnDevice, MovesEveryDtypeToEveryDtypeInEveryLayout) {
  for (const DType from : kAllTypes)
    for (const DType to : kAllTypes) {  // more numbers than a block takes, and no multiple of that
      const Tensor x = counted(device, {5, 29, 16}, from);
      for (const Tensor& source : {x, x.transpose(1, 2), x.permute({2, 0, 1}), x.slice(2, 3, 12), x.slice(2, 8, 16),
                                   x.slice(1, 2, 3), x.select(2, 4), x.select(0, 1).unsqueeze(1).expand({29, 5, 16})}) {
        const std::vector<double> expected = doubles(source);
        ASSERT_EQ(doubles(kernels::cast(source, to)), expected) << from << " to " << to << ' ' << source.strides();
        Dims turned = source.shape();
        std::swap(turned[0], turned[source.rank() - 1]);
        const Tensor target = zeros(device, turned, to).transpose(0, -1);
        kernels::copy_into(target, source);
        ASSERT_EQ(doubles(target), expected) << from << " to transposed " << to << ' ' << source.strides();
      }
    }
}

TEST_P(CopyOnDevice, TurnsMatricesOfManyTilesAndWhatIsLeftAtTheirEdges) {
  for (const DType dtype : kAllTypes)
    for (const auto& [rows, columns] : {std::pair{67, 131}, {32, 64}, {8, 33}, {5, 40}}) {
      const Tensor x = counted(device, {2, rows, columns}, dtype);
      const Tensor turned = x.transpose(1, 2);
      const std::vector<double> expected = doubles(turned);
      ASSERT_EQ(doubles(kernels::contiguous(turned)), expected) << dtype << rows << ' ' << columns;
      // The other way round: the target is the one that is turned, and a part of a larger tensor.
      const Tensor whole = kernels::full(device, {columns + 3, 2, rows + 2}, 7, dtype);
      const Tensor target = whole.slice(0, 1, columns + 1).slice(2, 2, rows + 2).permute({1, 2, 0});
      kernels::copy_into(target, x);
      ASSERT_EQ(doubles(target), doubles(x)) << dtype << rows << ' ' << columns;
      EXPECT_EQ(doubles(whole.select(0, 0)), std::vector<double>(static_cast<std::size_t>(2 * rows + 4), 7));
    }
}

TEST_P(CopyOnDevice, WritesOnlyTheViewItWasGiven) {
  const Tensor whole = kernels::full(device, {4, 30, 20}, -1);
  for (const bool turn : {false, true}) {
    Tensor view = whole.slice(1, 5, 25).slice(2, 1, 19);
    if (turn) view = view.transpose(1, 2);
    const Tensor source = counted(device, view.shape(), DType::f32);
    kernels::copy_into(view, source);
    EXPECT_EQ(doubles(view), doubles(source));
    double sum = 0, expected = 0;
    for (const double value : doubles(whole)) sum += value;
    for (const double value : doubles(source)) expected += value;
    EXPECT_EQ(sum, expected - static_cast<double>(whole.numel() - view.numel()));
  }
}

TEST_P(CopyOnDevice, KeepsTheBitsOfNanAndTheNumbersThatAFloatWouldLose) {
  const std::vector<std::uint16_t> bits = {0x7f81, 0xffff, 0x0001, 0x8000};
  Tensor odd = empty(device, {2, 2}, DType::bf16);
  odd.copy_from_host(bits.data());
  for (const Tensor& copy : {kernels::clone(odd), kernels::contiguous(odd.transpose(0, 1)).transpose(0, 1)}) {
    const std::vector<bf16> back = copy.to_vector<bf16>();
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(back[i].bits, bits[i]);
  }
  const std::int64_t large = (std::int64_t{1} << 62) + 3;
  const Tensor i64 = from_values(device, std::vector<std::int64_t>{large, -5}, {2});
  EXPECT_EQ(kernels::clone(i64).to_vector<std::int64_t>()[0], large);
  const Tensor i32 = from_values(device, std::vector<std::int32_t>{2147483647, -2147483647}, {2});
  EXPECT_EQ(doubles(kernels::cast(i32, DType::f64)), doubles(i32));
  EXPECT_EQ(doubles(kernels::cast(i32, DType::i64)), doubles(i32));
  const Tensor f32 = tensor_of(device, {NAN, INFINITY, -2.75, 70000}, {4});
  EXPECT_TRUE(std::isnan(doubles(kernels::cast(f32, DType::bf16))[0]));
  EXPECT_EQ(doubles(kernels::cast(f32, DType::f16))[1], INFINITY);
  EXPECT_EQ(doubles(kernels::cast(f32, DType::f16))[3], INFINITY);
  EXPECT_EQ(doubles(kernels::cast(f32.slice(0, 2, 3), DType::i32))[0], -2);
}

TEST_P(CopyOnDevice, RoundsAsTheProcessorDoes) {
  const Tensor x = uniform_tensor(host, {333}, 3, DType::f64, -1e3, 1e3);
  for (const DType to : {DType::f32, DType::bf16, DType::f16}) {
    EXPECT_EQ(doubles(kernels::cast(on_device(x), to)), doubles(kernels::cast(x, to)));
    const Tensor narrow = kernels::cast(x, DType::f32);
    EXPECT_EQ(doubles(kernels::cast(on_device(narrow), to)), doubles(kernels::cast(narrow, to)));
  }
}

TEST_P(CopyOnDevice, BroadcastsAndJoins) {
  const Tensor to = empty(device, {3, 4});
  kernels::copy_into(to, tensor_of(device, {1, 2, 3, 4}, {4}));
  EXPECT_EQ(doubles(to), (std::vector<double>{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}));
  kernels::copy_into(empty(device, {0, 4}), empty(device, {0, 4}));
  for (int dim = 0; dim < 3; ++dim) {
    const Tensor x = counted(device, {9, 10, 11}, DType::bf16).permute({1, 0, 2});
    const std::vector<Tensor> parts = {x.slice(dim, 0, 2), x.slice(dim, 2, 2), x.slice(dim, 2, x.dim(dim))};
    EXPECT_EQ(doubles(kernels::concat(parts, dim)), doubles(x));
  }
}

TEST_P(CopyOnDevice, FillReachesEveryElementOfAViewAndNoOther) {
  for (const DType dtype : kAllTypes) {
    const Tensor x = zeros(device, {17, 30}, dtype);
    kernels::fill(x.transpose(0, 1).slice(0, 10, 25), 3);
    const std::vector<double> values = doubles(x);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], i % 30 >= 10 && i % 30 < 25 ? 3 : 0) << dtype << ' ' << i;
    EXPECT_EQ(doubles(kernels::full(device, {11}, 5, dtype)), std::vector<double>(11, 5));
    kernels::fill(x, 0);
    EXPECT_EQ(doubles(x), std::vector<double>(17 * 30));
  }
  EXPECT_TRUE(std::signbit(doubles(kernels::full(device, {1}, -0.0))[0]));
}

TEST_P(CopyOnDevice, WhereChoosesByConditionWithBroadcast) {
  for (const DType dtype : kAllTypes) {
    const Tensor condition = tensor_of(device, {1, 0, 1, 0, 0, 7}, {2, 3}, DType::u8);
    const Tensor a = tensor_of(device, {1, 2, 3}, {3}, dtype), b = tensor_of(device, {9, 8}, {2, 1}, dtype);
    EXPECT_EQ(doubles(kernels::where(condition, a, b)), (std::vector<double>{1, 9, 3, 8, 8, 3})) << dtype;
  }
  const Tensor condition = tensor_of(device, {1, 0, 1, 0, 0, 7, 0, 1}, {8, 1}, DType::u8).expand({8, 16});
  const Tensor a = counted(device, {8, 16}, DType::f16), b = kernels::full(device, {8, 16}, 0.5, DType::f16);
  std::vector<double> expected = doubles(a);
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (doubles(condition)[i] == 0) expected[i] = 0.5;
  EXPECT_EQ(doubles(kernels::where(condition, a, b)), expected);
}

TEST_P(CopyOnDevice, AccumulateAddsAsTheProcessorDoes) {
  for (const DType from : kAllTypes)
    for (const DType to : kAllTypes) {
      if (is_floating(from) && !is_floating(to)) continue;
      const Tensor into = uniform_tensor(host, {3, 24, 41}, 1, to, 0, 50);
      const Tensor x = uniform_tensor(host, {3, 41, 24}, 2, from, 0, 50);
      const Tensor into_device = on_device(kernels::clone(into)), x_device = on_device(x);
      kernels::accumulate(into_device, x_device.transpose(1, 2));
      kernels::accumulate(into, x.transpose(1, 2));
      EXPECT_EQ(doubles(into_device), doubles(into)) << from << " into " << to;
    }
}

TEST_P(CopyOnDevice, ScaleMultipliesInPlaceThroughAnyView) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const Tensor x = counted(device, {12, 19}, dtype);
    std::vector<double> expected = doubles(x.transpose(0, 1));
    for (double& value : expected) value *= 0.5;
    kernels::scale(x.transpose(0, 1), 0.5);
    EXPECT_EQ(doubles(x.transpose(0, 1)), expected);
  }
}

TEST_P(CopyOnDevice, ScaleByReadsItsFactorOnTheDevice) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const Tensor x = counted(device, {2100}, dtype);
    std::vector<double> expected = doubles(x);
    const Tensor two = from_values(device, std::vector<std::int64_t>{2}, {});
    kernels::scale_by(x, tensor_of(device, {0.5}, {}), two);
    for (double& value : expected) value *= 0.25;
    EXPECT_EQ(doubles(x), expected);
    kernels::scale_by(x, tensor_of(device, {4}, {}, DType::f64));
    for (double& value : expected) value *= 4;
    EXPECT_EQ(doubles(x), expected);
    kernels::scale_by(x, tensor_of(device, {2}, {}), two);
    EXPECT_EQ(doubles(x), expected);
    kernels::scale_by(x, tensor_of(device, {2}, {}), from_values(device, std::vector<std::int64_t>{0}, {}));
    EXPECT_EQ(doubles(x), std::vector<double>(2100));
  }
}

TEST_P(CopyOnDevice, ScaleByGoesOnWhereThereIsMoreThanItsBlocksBeginWith) {
  if (GetParam() != Order::forward) return;                // one order is enough for a test of this size
  constexpr std::int64_t kCount = 4096 * 2048 + 2048 + 5;  // of bf16, which holds the numbers to 256
  std::vector<bf16> numbers;
  for (std::int64_t i = 0; i < kCount; ++i) numbers.emplace_back(static_cast<float>(i % 251));
  const Tensor x = from_values(device, numbers, {kCount});
  kernels::scale_by(x, tensor_of(device, {0.5}, {}));
  const std::vector<bf16> got = x.to_vector<bf16>();
  for (std::int64_t i = 0; i < kCount; ++i)
    ASSERT_EQ(static_cast<float>(got[static_cast<std::size_t>(i)]), 0.5f * static_cast<float>(i % 251)) << i;
}

TEST_P(CopyOnDevice, ScaleByOneLeavesEveryBit) {
  const std::vector<std::uint16_t> bits = {0x7f81, 0x0001};
  const Tensor x = empty(device, {2}, DType::bf16);
  x.copy_from_host(bits.data());
  kernels::scale_by(x, tensor_of(device, {1}, {}));
  EXPECT_EQ(x.to_vector<bf16>()[0].bits, bits[0]);
}

TEST_P(CopyOnDevice, ArangeCountsFromAnyNumber) {
  const std::vector<std::int64_t> numbers = kernels::arange(device, -3, 3000).to_vector<std::int64_t>();
  for (std::int64_t i = 0; i < 3000; ++i) EXPECT_EQ(numbers[static_cast<std::size_t>(i)], i - 3);
  EXPECT_EQ(kernels::arange(device, 5, 0).numel(), 0);
}

}  // namespace
}  // namespace keel
