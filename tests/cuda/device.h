#pragma once
// What tests of CUDA kernels share: the device, the orders in which its threads run, and comparison with the processor.
//
// In an emulated build the device is emulated:0, and each test runs with blocks and threads in forward, reverse and
// shuffled order: a missing barrier gives another result in one of them. Elsewhere it is cuda:0, where there is one.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "keel/kernels/elementwise.h"
#include "keel/runtime/device_api.h"
#include "tests/support.h"
#ifdef KEEL_EMULATED
#include "keel/runtime/emulation/grid.h"
#endif

namespace keel::testing {

#ifdef KEEL_EMULATED
inline constexpr Device kTestDevice = {DeviceType::emulated, 0};
#else
inline constexpr Device kTestDevice = {DeviceType::cuda, 0};
#endif

// The order in which blocks and threads run; on a GPU it cannot be chosen.
enum class Order : unsigned char { forward, reverse, shuffled };

inline void PrintTo(Order order, std::ostream* out) {
  *out << (order == Order::forward ? "forward" : order == Order::reverse ? "reverse" : "shuffled");
}

inline std::vector<Order> test_orders() {
#ifdef KEEL_EMULATED
  return {Order::forward, Order::reverse, Order::shuffled};
#else
  return {Order::forward};
#endif
}

// The dtypes in which every arithmetic kernel works.
inline constexpr DType kKernelTypes[] = {DType::f32, DType::bf16, DType::f16};
// Those that tensor cores multiply.
inline constexpr DType kHalves[] = {DType::bf16, DType::f16};

// What one rounding to the dtype, or a short fp32 sum, may cost relative to a result.
inline double rounding(DType dtype) {
  switch (dtype) {
    case DType::bf16: return 4e-3;
    case DType::f16: return 5e-4;
    default: return 2e-6;
  }
}

// None of an optional tensor that is not there.
inline std::vector<double> numbers(const Tensor& x) { return x.defined() ? doubles(x) : std::vector<double>{}; }

class OnDevice : public ::testing::TestWithParam<Order> {
 protected:
  void SetUp() override {
    const DeviceCount found = count_devices(kTestDevice.type);
    if (found.count == 0) GTEST_SKIP() << found.why_none;
    ContextOptions options;
    options.device = kTestDevice;
    options.kernels = KernelChoice::plain;  // keel's own
    device = Context::create(options);
#ifdef KEEL_EMULATED
    emulation::grid_options().blocks = emulation::grid_options().threads = static_cast<emulation::Order>(GetParam());
#endif
  }
#ifdef KEEL_EMULATED
  void TearDown() override { emulation::grid_options() = {}; }
#endif

  Tensor on_device(const Tensor& x) const { return x.defined() ? kernels::to(x, device) : x; }
  // The tensor's numbers, rounded to its dtype, as f64 on the processor.
  Tensor wide(const Tensor& x) const {
    return x.defined() && is_floating(x.dtype()) ? kernels::cast(kernels::to(x, host), DType::f64) : x;
  }

  // Checks that compute(), called twice, gives tensors of the same bits: in an emulated build once in this test's order
  // of threads and once in the forward one.
  template <class F>
  void expect_same_bits_again(const F& compute) const {
    std::vector<std::vector<double>> first;
    for (const Tensor& result : compute()) first.push_back(doubles(result));
#ifdef KEEL_EMULATED
    emulation::grid_options().blocks = emulation::grid_options().threads = emulation::Order::forward;
#endif
    std::size_t i = 0;
    for (const Tensor& result : compute()) EXPECT_EQ(doubles(result), first[i++]) << result;
#ifdef KEEL_EMULATED
    emulation::grid_options().blocks = emulation::grid_options().threads = static_cast<emulation::Order>(GetParam());
#endif
  }

  Context device;
  Context host = context();
};

// A dense tensor whose first number lies one element past a 16-byte boundary.
inline Tensor off_boundary(const Tensor& x) {
  std::vector<double> values = doubles(x);
  values.insert(values.begin(), 0);
  return tensor_of(x.context(), values, {x.numel() + 1}, x.dtype()).slice(0, 1, x.numel() + 1).view(x.shape());
}

// Every element within `factor` roundings of its reference: relative to it, plus `floor` for what cancels. An f16 below
// its normal range is good to half a step there.
inline void expect_close(const Tensor& result, const std::vector<double>& reference, double factor = 1,
                         double floor = 0) {
  const std::vector<double> values = doubles(result);
  ASSERT_EQ(values.size(), reference.size());
  const double allowed = factor * rounding(result.dtype()), subnormal = result.dtype() == DType::f16 ? 0x1p-25 : 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == reference[i] || (std::isnan(values[i]) && std::isnan(reference[i]))) continue;
    ASSERT_NEAR(values[i], reference[i], allowed * (std::fabs(reference[i]) + floor) + subnormal)
        << result << " element " << i;
  }
}
inline void expect_close(const Tensor& result, const Tensor& reference, double factor = 1, double floor = 0) {
  EXPECT_EQ(result.shape(), reference.shape());
  expect_close(result, doubles(reference), factor, floor);
}

// Two results of a 16-bit dtype that each were rounded once, from fp32 numbers less than one step of the dtype apart:
// rounding keeps their order, so that they are the same number or neighbours. They are neighbours where the middle of
// two lies between them, however little they differ, and then half a step, as rounding() has it, is too little.
inline void expect_same_or_neighbours(const Tensor& result, const Tensor& reference) {
  const bool half = result.dtype() == DType::f16;
  ASSERT_TRUE(half || result.dtype() == DType::bf16) << result;
  ASSERT_EQ(result.shape(), reference.shape());
  const std::vector<double> a = doubles(result), b = doubles(reference);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    ASSERT_TRUE(std::isfinite(a[i]) && std::isfinite(b[i]))
        << result << " element " << i << ": " << a[i] << ", " << b[i];
    const int exponent = std::max(std::ilogb(std::max(std::fabs(a[i]), std::fabs(b[i]))), half ? -14 : -126);
    ASSERT_LE(std::fabs(a[i] - b[i]), std::ldexp(1.0, exponent - (half ? 10 : 7)))
        << result << " element " << i << ": " << a[i] << " and " << b[i];
  }
}

}  // namespace keel::testing

// A suite whose tests, written with TEST_P, run once in each order.
#define KEEL_DEVICE_SUITE(name)                                                         \
  class name : public ::keel::testing::OnDevice {};                                     \
  INSTANTIATE_TEST_SUITE_P(, name, ::testing::ValuesIn(::keel::testing::test_orders()), \
                           [](const auto& info) { return ::testing::PrintToString(info.param); })
