// Softmax and log-softmax on a device.

#include "keel/kernels/softmax.h"

#include <algorithm>
#include <limits>

#include "tests/cuda/device.h"

namespace keel {
namespace {

using namespace keel::testing;
using kernels::log_softmax;
using kernels::log_softmax_backward;
using kernels::softmax;
using kernels::softmax_backward;

KEEL_DEVICE_SUITE(SoftmaxOnDevice);

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Rows of a few elements, of whole packs for one warp and for several, and with parts of packs at their ends.
const Dims kSoftmaxShapes[] = {{1, 1}, {9, 7}, {11, 64}, {2, 3, 96}, {2, 1040}, {3, 65}, {2, 1031}};

// A row that no block holds in registers, and one that does not fit in shared memory either.
constexpr std::int64_t kLong = 16392, kLonger = 28685;

TEST_P(SoftmaxOnDevice, EqualsTheProcessorInFp64ForEveryDtypeAndSize) {
  for (const DType dtype : kKernelTypes)
    for (const Dims& shape : kSoftmaxShapes) {
      const Tensor x = uniform_tensor(device, shape, 1, dtype, -4, 4);
      expect_close(softmax(x), softmax(wide(x)));
      expect_close(log_softmax(x), log_softmax(wide(x)), 1, 1);
    }
}

TEST_P(SoftmaxOnDevice, LongRowsEqualTheProcessor) {
  for (const DType dtype : kKernelTypes) {
    const Tensor x = uniform_tensor(device, {1, kLong + (dtype == DType::f16)}, 2, dtype, -9, 9);
    expect_close(softmax(x), softmax(wide(x)), 2, 1e-6);
    expect_close(log_softmax(x), log_softmax(wide(x)), 1, 1);
  }
  const Tensor x = uniform_tensor(device, {1, kLonger}, 3, DType::f32, -9, 9);
  expect_close(softmax(x), softmax(wide(x)), 2, 1e-6);
}

TEST_P(SoftmaxOnDevice, BackwardEqualsTheProcessorInFp64ForEveryDtypeAndSize) {
  for (const DType dtype : kKernelTypes)
    for (const Dims& shape : kSoftmaxShapes) {
      const Tensor x = uniform_tensor(device, shape, 4, dtype, -2, 2), grad = uniform_tensor(device, shape, 5, dtype);
      const Tensor y = softmax(x), log_y = log_softmax(x);
      expect_close(softmax_backward(grad, y), softmax_backward(wide(grad), wide(y)), 1, 0.01);
      expect_close(log_softmax_backward(grad, log_y), log_softmax_backward(wide(grad), wide(log_y)), 1, 0.1);
    }
  const Tensor grad = uniform_tensor(device, {1, kLong}, 6), y = softmax(uniform_tensor(device, {1, kLong}, 7));
  expect_close(softmax_backward(grad, y), softmax_backward(wide(grad), wide(y)), 1, 1e-4);
}

TEST_P(SoftmaxOnDevice, RowsThatBeginAnywhereAreAccepted) {
  for (const DType dtype : kKernelTypes)
    for (const std::int64_t cols : {1, 6, 40, 67}) {
      const Tensor x = uniform_tensor(device, {3, cols}, 8, dtype), grad = uniform_tensor(device, {3, cols}, 9, dtype);
      const Tensor y = softmax(x);
      expect_close(softmax(off_boundary(x)), softmax(wide(x)));
      expect_close(softmax_backward(off_boundary(grad), y), softmax_backward(wide(grad), wide(y)), 1, 0.1);
      expect_close(softmax_backward(off_boundary(grad), off_boundary(y)), softmax_backward(wide(grad), wide(y)), 1,
                   0.1);
    }
}

TEST_P(SoftmaxOnDevice, MaskedElementsGetNothingAndAFullyMaskedRowIsNan) {
  for (const DType dtype : kKernelTypes)
    for (const std::int64_t cols : {std::int64_t{64}, std::int64_t{67}, kLong}) {
      const auto width = static_cast<std::size_t>(cols);
      std::vector<double> values(2 * width, -kInfinity);
      values[width - 1] = 1;
      const std::vector<double> y = doubles(softmax(tensor_of(device, values, {2, cols}, dtype)));
      EXPECT_EQ(y[0], 0);
      EXPECT_EQ(y[width - 1], 1);
      EXPECT_TRUE(std::all_of(y.begin() + cols, y.end(), [](double p) { return std::isnan(p); })) << dtype << cols;
      const std::vector<double> log_y = doubles(log_softmax(tensor_of(device, values, {2, cols}, dtype)));
      EXPECT_EQ(log_y[0], -kInfinity);
      EXPECT_EQ(log_y[width - 1], 0);
      EXPECT_TRUE(std::isnan(log_y[width]));
    }
}

TEST_P(SoftmaxOnDevice, ARowOfTheLowestNumberIsUniform) {
  for (const std::int64_t cols : {8, 9}) {
    const std::vector<double> values(static_cast<std::size_t>(cols), -0x1.fep127);
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const double p : doubles(softmax(tensor_of(device, values, {1, cols}, dtype))))
        EXPECT_NEAR(p, 1.0 / static_cast<double>(cols), 1e-3);
  }
}

TEST_P(SoftmaxOnDevice, NonFiniteInputsStayInTheirRow) {
  for (const DType dtype : kKernelTypes)
    for (const std::size_t cols : {8, 9})
      for (const double bad : {kInfinity, std::nan("")}) {
        std::vector<double> values(3 * cols, 0.5);
        values[cols + 4] = bad;
        const Dims shape = {3, static_cast<std::int64_t>(cols)};
        const std::vector<double> y = doubles(softmax(tensor_of(device, values, shape, dtype)));
        for (std::size_t i = 0; i < y.size(); ++i) {
          if (i / cols == 1) EXPECT_TRUE(std::isnan(y[i]));
          else EXPECT_NEAR(y[i], 1 / static_cast<double>(cols), 1e-3);
        }
      }
}

TEST_P(SoftmaxOnDevice, GivesTheSameBitsInAnyOrder) {
  for (const std::int64_t cols : {64, 1040, 1031}) {
    const Tensor x = uniform_tensor(device, {3, cols}, 10), grad = uniform_tensor(device, {3, cols}, 11);
    expect_same_bits_again([&] {
      const Tensor y = softmax(x), log_y = log_softmax(x);
      return std::vector{y, log_y, softmax_backward(grad, y), log_softmax_backward(grad, log_y)};
    });
  }
}

TEST_P(SoftmaxOnDevice, OfNothingIsNothing) {
  EXPECT_EQ(softmax(empty(device, {0, 4})).shape(), (Dims{0, 4}));
  EXPECT_EQ(softmax(empty(device, {4, 0})).shape(), (Dims{4, 0}));
  EXPECT_EQ(softmax_backward(empty(device, {0, 4}), empty(device, {0, 4})).numel(), 0);
  EXPECT_THROW(softmax(empty(device, {1, 4}, DType::f64)), Error);
}

}  // namespace
}  // namespace keel
