// Tensor-core products, matrix loads and asynchronous copies give the same numbers on a GPU and in the emulator.

#include <numeric>

#include "tests/cuda/device.h"
#include "tests/cuda/tensor_core_kernels.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(TensorCores);

// first, first + 1, ...: whole numbers below 257 are exact in both dtypes, and so are the sums of their products.
std::vector<double> counting(std::int64_t count, double first) {
  std::vector<double> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST_P(TensorCores, MultiplyTilesWhoseElementsAllDiffer) {
  const std::vector<double> a = counting(256, 0), b = counting(128, -60), before = counting(128, 1000);
  std::vector<double> expected = before;
  for (std::size_t i = 0; i < 16; ++i)
    for (std::size_t j = 0; j < 8; ++j)
      for (std::size_t p = 0; p < 16; ++p) expected[i * 8 + j] += a[i * 16 + p] * b[p * 8 + j];
  for (const DType dtype : kHalves) {
    const Tensor sum = tensor_of(device, before, {16, 8});
    multiply_tiles(tensor_of(device, a, {16, 16}, dtype), tensor_of(device, b, {16, 8}, dtype), sum);
    EXPECT_EQ(doubles(sum), expected) << dtype;
  }
}

TEST_P(TensorCores, LoadMatricesAsTheyAreAndTransposed) {
  for (const int count : {1, 2, 4})
    for (const bool transposed : {false, true}) {
      std::vector<std::int32_t> words(static_cast<std::size_t>(count) * 32);  // two elements in each
      const auto element = [](int matrix, int row, int column) { return 1000 * matrix + 8 * row + column; };
      for (int i = 0; i < count * 32; ++i) {
        const int matrix = i / 32, row = i % 32 / 4, column = i % 4 * 2;
        words[static_cast<std::size_t>(i)] = element(matrix, row, column) | element(matrix, row, column + 1) << 16;
      }
      const Tensor matrices = from_values(device, words, {count, 8, 4}), out = empty(device, {32, count}, DType::i32);
      load_tiles(matrices, transposed, out);
      const auto loaded = out.to_vector<std::int32_t>();
      for (int lane = 0; lane < 32; ++lane)
        for (int m = 0; m < count; ++m) {
          const int g = lane / 4, t = lane % 4;
          const int low = transposed ? element(m, 2 * t, g) : element(m, g, 2 * t);
          const int high = transposed ? element(m, 2 * t + 1, g) : element(m, g, 2 * t + 1);
          EXPECT_EQ(loaded[static_cast<std::size_t>(lane * count + m)], low | high << 16)
              << "lane " << lane << " matrix " << m << " of " << count << (transposed ? " transposed" : "");
        }
    }
}

TEST_P(TensorCores, MultiplyWhatArrivesLaterWithZerosBeyondTheEdges) {
  for (const DType dtype : kHalves)
    for (const int k : {16, 5, 40, 61})
      for (const int m : {16, 9}) {
        const int n = 25 - m;
        // Beyond k the rows hold NaN, which must not be multiplied.
        const auto strip = [&](int rows, double first) {
          std::vector<double> values(static_cast<std::size_t>(rows * 64), NAN);
          for (int i = 0; i < rows; ++i)
            for (int p = 0; p < k; ++p) values[static_cast<std::size_t>(i * 64 + p)] = first + (i * 61 + p * 7) % 97;
          return values;
        };
        const std::vector<double> a = strip(m, -40), b = strip(n, -50);
        std::vector<double> expected(static_cast<std::size_t>(m * n));
        for (int i = 0; i < m; ++i)
          for (int j = 0; j < n; ++j)
            for (int p = 0; p < k; ++p)
              expected[static_cast<std::size_t>(i * n + j)] +=
                  a[static_cast<std::size_t>(i * 64 + p)] * b[static_cast<std::size_t>(j * 64 + p)];
        const Tensor out = empty(device, {m, n});
        multiply_strips(tensor_of(device, a, {m, 64}, dtype), tensor_of(device, b, {n, 64}, dtype), k, out);
        EXPECT_EQ(doubles(out), expected) << dtype << " m " << m << " k " << k;
      }
}

}  // namespace
}  // namespace keel
