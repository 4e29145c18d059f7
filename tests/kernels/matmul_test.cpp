#include "keel/kernels/matmul.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "keel/kernels/cpu/backend.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::kFloats;
using testing::relative_error;
using testing::uniform_tensor;

// One context for each implementation: keel's own kernels, what `automatic` prefers, oneDNN wherever it can.
const std::vector<Context>& every_context() {
  static const std::vector<Context> contexts = [] {
    std::vector<Context> list = {testing::context(2, KernelChoice::plain), testing::context(2)};
    if (cpu::onednn_entry() != nullptr) {
      const Context onednn = testing::context(2);
      static KernelTable table = kernel_table(onednn);
      table.matmul = cpu::onednn_entry();
      onednn.kernel_table() = &table;
      list.push_back(onednn);
    }
    return list;
  }();
  return contexts;
}

// Rounding of one result of this dtype, relative to the norm of all.
double product_tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-14;
    case DType::f32: return 2e-6;
    case DType::f16: return 1e-3;
    default: return 6e-3;
  }
}

// (m, k) as memory may hold it: dense, transposed, a part of something wider, every second number.
enum class MatrixLayout { dense, transposed, slice, transposed_slice, scattered };
constexpr MatrixLayout kMatrixLayouts[] = {MatrixLayout::dense, MatrixLayout::transposed, MatrixLayout::slice,
                                           MatrixLayout::transposed_slice, MatrixLayout::scattered};

Tensor matrix(const Context& context, std::int64_t rows, std::int64_t columns, MatrixLayout layout, DType dtype,
              std::uint64_t seed) {
  switch (layout) {
    case MatrixLayout::dense: return uniform_tensor(context, {rows, columns}, seed, dtype);
    case MatrixLayout::transposed: return uniform_tensor(context, {columns, rows}, seed, dtype).transpose(0, 1);
    case MatrixLayout::slice: return uniform_tensor(context, {rows, columns + 5}, seed, dtype).slice(1, 3, columns + 3);
    case MatrixLayout::transposed_slice:
      return uniform_tensor(context, {columns, rows + 3}, seed, dtype).slice(1, 1, rows + 1).transpose(0, 1);
    default: return uniform_tensor(context, {rows, columns, 2}, seed, dtype).select(2, 1);
  }
}

// a (m, k) times b (k, n), both row-major.
std::vector<double> multiply(const std::vector<double>& a, const std::vector<double>& b, std::int64_t m, std::int64_t n,
                             std::int64_t k) {
  std::vector<double> c(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t p = 0; p < k; ++p) {
      const double factor = a[static_cast<std::size_t>(i * k + p)];
      for (std::int64_t j = 0; j < n; ++j)
        c[static_cast<std::size_t>(i * n + j)] += factor * b[static_cast<std::size_t>(p * n + j)];
    }
  }
  return c;
}

std::vector<double> product_reference(const Tensor& a, const Tensor& b) {
  return multiply(doubles(a), doubles(b), a.dim(0), b.dim(1), a.dim(1));
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) { return error.what(); }
  return "";
}

TEST(Matmul, EqualsADoubleReferenceForEveryLayout) {
  const Dims sizes[] = {{1, 1, 1}, {2, 3, 5}, {13, 33, 7}, {7, 47, 65}, {12, 32, 2}, {64, 65, 31}};
  for (const Context& context : every_context()) {
    for (const DType dtype : kFloats) {
      for (const MatrixLayout left : kMatrixLayouts) {
        for (const MatrixLayout right : kMatrixLayouts) {
          for (const Dims& size : sizes) {
            const Tensor a = matrix(context, size[0], size[2], left, dtype, 1);
            const Tensor b = matrix(context, size[2], size[1], right, dtype, 2);
            EXPECT_LT(relative_error(doubles(kernels::matmul(a, b)), product_reference(a, b)), product_tolerance(dtype))
                << a << " layout " << static_cast<int>(left) << " times " << b << " layout " << static_cast<int>(right);
          }
        }
      }
    }
  }
}

TEST(Matmul, EqualsADoubleReferenceAroundTheEdgesOfItsBlocks) {
  // m, n, k: tiles of 12 x 32, column blocks of 256, k blocks of 384 steps, tasks of 96 rows.
  const Dims sizes[] = {{96, 96, 400},  {97, 31, 385}, {37, 129, 1000}, {300, 50, 777}, {5, 300, 800},
                        {257, 513, 63}, {100, 200, 1}, {500, 24, 769},  {600, 530, 20}};
  for (const Context& context : every_context()) {
    for (const DType dtype : kFloats) {
      for (const Dims& size : sizes) {
        for (const bool transposed : {false, true}) {
          const MatrixLayout layout = transposed ? MatrixLayout::transposed : MatrixLayout::dense;
          const Tensor a = matrix(context, size[0], size[2], layout, dtype, 3);
          const Tensor b = matrix(context, size[2], size[1], layout, dtype, 4);
          EXPECT_LT(relative_error(doubles(kernels::matmul(a, b)), product_reference(a, b)), product_tolerance(dtype))
              << a << " times " << b;
        }
      }
    }
  }
}

TEST(Matmul, SumsALongInnerExtentPieceByPiece) {
  const Context context = testing::context(2, KernelChoice::plain);
  const std::int64_t m = 33, n = 40;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::int64_t k = dtype == DType::f32 ? 70001 : 130001;
    const Tensor a = uniform_tensor(context, {m, k}, 5, dtype), b = uniform_tensor(context, {k, n}, 6, dtype);
    EXPECT_LT(relative_error(doubles(kernels::matmul(a, b)), product_reference(a, b)), 10 * product_tolerance(dtype));
  }
}

TEST(Matmul, AddsToItsDestination) {
  for (const Context& context : every_context()) {
    for (const DType dtype : kFloats) {
      for (const std::int64_t k : {33, 900}) {
        const Tensor a = uniform_tensor(context, {k, 50}, 7, dtype).transpose(0, 1);
        const Tensor b = uniform_tensor(context, {k, 70}, 8, dtype);
        const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
        for (const DType out : {dtype, wide}) {
          const Tensor into = uniform_tensor(context, {50, 80}, 9, out).slice(1, 2, 72);
          std::vector<double> expected = doubles(into);
          const std::vector<double> product = product_reference(a, b);
          for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += product[i];
          const std::uint64_t version = into.storage()->version();
          kernels::matmul(a, b, {.into = into, .accumulate = true});
          EXPECT_LT(relative_error(doubles(into), expected), product_tolerance(out))
              << dtype << " into " << out << ", k " << k;
          EXPECT_GT(into.storage()->version(), version);
        }
      }
    }
  }
}

TEST(Matmul, OverwritesItsDestinationInEitherDtypeAndScalesByAlpha) {
  for (const Context& context : every_context()) {
    for (const DType dtype : kFloats) {
      const Tensor a = uniform_tensor(context, {20, 500}, 10, dtype), b = uniform_tensor(context, {500, 36}, 11, dtype);
      std::vector<double> expected = product_reference(a, b);
      for (double& value : expected) value *= 0.25;
      for (const DType out : {dtype, dtype == DType::f64 ? DType::f64 : DType::f32}) {
        const Tensor into = testing::tensor_of(context, std::vector<double>(720, NAN), {20, 36}, out);
        const Tensor result = kernels::matmul(a, b, {.into = into, .alpha = 0.25f});
        EXPECT_EQ(result.raw(), into.raw());
        EXPECT_LT(relative_error(doubles(into), expected), product_tolerance(out));
      }
    }
  }
}

TEST(Matmul, FusesBiasAndGelu) {
  for (const Context& context : every_context()) {
    for (const DType dtype : kFloats) {
      for (const std::int64_t k : {24, 800}) {
        const std::int64_t m = 45, n = 83;
        const double size = 2 / std::sqrt(static_cast<double>(k));
        const Tensor a = uniform_tensor(context, {m, k}, 12, dtype, -size, size),
                     b = uniform_tensor(context, {n, k}, 13, dtype).transpose(0, 1);
        const Tensor bias = uniform_tensor(context, {n}, 14, dtype);
        std::vector<double> biased = product_reference(a, b), activated;
        const std::vector<double> shift = doubles(bias);
        for (std::size_t i = 0; i < biased.size(); ++i) {
          const double x = biased[i] += shift[i % static_cast<std::size_t>(n)];
          activated.push_back(0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))));
        }
        EXPECT_LT(relative_error(doubles(kernels::matmul(a, b, {.epilogue = Epilogue::bias, .bias = bias})), biased),
                  product_tolerance(dtype));
        Tensor before;
        const Tensor gelu =
            kernels::matmul(a, b, {.epilogue = Epilogue::bias_gelu, .bias = bias, .pre_activation = &before});
        EXPECT_LT(relative_error(doubles(before), biased), product_tolerance(dtype));
        EXPECT_LT(relative_error(doubles(gelu), activated), 2 * product_tolerance(dtype));
        const Tensor without = kernels::matmul(a, b, {.epilogue = Epilogue::bias_gelu, .bias = bias});
        EXPECT_EQ(doubles(gelu), doubles(without)) << "keeping the value before GELU changed the result";
      }
    }
  }
}

TEST(Matmul, MultipliesBatchesOfAnyStrideOneByOne) {
  for (const Context& context : every_context()) {
    for (const DType dtype : kFloats) {
      // (batch, time, heads, size) seen as (batch, heads, time, size): the heads interleave.
      const Tensor a = uniform_tensor(context, {2, 19, 3, 8}, 15, dtype).transpose(1, 2);
      const Tensor b = uniform_tensor(context, {2, 21, 3, 8}, 16, dtype).transpose(1, 2).transpose(2, 3);
      const Tensor all = kernels::matmul(a, b);
      ASSERT_EQ(all.shape(), Dims({2, 3, 19, 21}));
      for (int i = 0; i < 2; ++i) {
        for (int j = 0; j < 3; ++j) {
          EXPECT_LT(relative_error(doubles(all.select(0, i).select(0, j)),
                                   product_reference(a.select(0, i).select(0, j), b.select(0, i).select(0, j))),
                    product_tolerance(dtype));
        }
      }
    }
  }
}

TEST(Matmul, SharesAMatrixAmongABatchOnEitherSide) {
  const Context context = testing::context();
  const Tensor shared = uniform_tensor(context, {6, 9}, 17);
  const Tensor dense = uniform_tensor(context, {4, 5, 6}, 18),
               scattered = uniform_tensor(context, {5, 4, 6}, 19).transpose(0, 1);
  for (const Tensor& x : {dense, scattered}) {
    const Tensor right = kernels::matmul(x, shared);
    const Tensor left = kernels::matmul(shared.transpose(0, 1), x.transpose(1, 2));
    ASSERT_EQ(right.shape(), Dims({4, 5, 9}));
    ASSERT_EQ(left.shape(), Dims({4, 9, 5}));
    for (int i = 0; i < 4; ++i) {
      EXPECT_LT(relative_error(doubles(right.select(0, i)), product_reference(x.select(0, i), shared)), 1e-6);
      EXPECT_LT(relative_error(doubles(left.select(0, i).transpose(0, 1)), product_reference(x.select(0, i), shared)),
                1e-6);
    }
  }
}

TEST(Matmul, GivesZerosForAnEmptyInnerExtentAndNothingForAnEmptyResult) {
  for (const Context& context : every_context()) {
    EXPECT_EQ(doubles(kernels::matmul(uniform_tensor(context, {3, 0}, 20), uniform_tensor(context, {0, 2}, 20))),
              std::vector<double>(6, 0));
    EXPECT_EQ(kernels::matmul(uniform_tensor(context, {0, 4}, 20), uniform_tensor(context, {4, 2}, 20)).shape(),
              Dims({0, 2}));
    EXPECT_EQ(kernels::matmul(uniform_tensor(context, {2, 3, 0}, 20), uniform_tensor(context, {0, 2}, 20)).shape(),
              Dims({2, 3, 2}));
    const Tensor into = uniform_tensor(context, {3, 2}, 21);
    const std::vector<double> before = doubles(into);
    kernels::matmul(uniform_tensor(context, {3, 0}, 20), uniform_tensor(context, {0, 2}, 20),
                    {.into = into, .accumulate = true});
    EXPECT_EQ(doubles(into), before);
  }
}

TEST(Matmul, CarriesInfinityAndNan) {
  for (const Context& context : every_context()) {
    for (const DType dtype : kFloats) {
      const Tensor a = testing::tensor_of(context, {1, 2, NAN, 0, INFINITY, 1}, {3, 2}, dtype);
      const Tensor b = testing::tensor_of(context, {1, 1}, {2, 1}, dtype);
      const std::vector<double> result = doubles(kernels::matmul(a, b));
      EXPECT_EQ(result[0], 3);
      EXPECT_TRUE(std::isnan(result[1]));
      EXPECT_EQ(result[2], INFINITY);
    }
  }
}

TEST(Matmul, GivesTheSameBitsAtOneAndTwoThreads) {
  const Context one = testing::context(1, KernelChoice::plain), two = testing::context(2, KernelChoice::plain);
  for (const DType dtype : kFloats) {
    for (const Dims& size : {Dims{200, 150, 1000}, Dims{30, 700, 130}, Dims{128, 65, 128}}) {
      const auto run = [&](const Context& context) {
        const Tensor a = uniform_tensor(context, {size[0], size[2]}, 22, dtype),
                     b = uniform_tensor(context, {size[2], size[1]}, 23, dtype);
        return doubles(kernels::matmul(a, b));
      };
      EXPECT_EQ(run(one), run(two)) << dtype << ' ' << size;
    }
  }
}

TEST(Matmul, NamesWhatMultipliesEachDtype) {
  const Context automatic = testing::context(), plain = testing::context(1, KernelChoice::plain);
  for (const DType dtype : kFloats) {
    EXPECT_EQ(kernels::matmul_backend(plain, dtype).rfind("keel (", 0), 0u);
    EXPECT_FALSE(kernels::matmul_backend(automatic, dtype).empty());
  }
  EXPECT_THROW(kernels::matmul_backend(plain, DType::i64), Error);
}

TEST(Matmul, SaysWhatDoesNotFit) {
  const Context context = testing::context(), other = testing::context();
  const Tensor a = uniform_tensor(context, {3, 4}, 1), b = uniform_tensor(context, {4, 5}, 2);
  const auto says = [](const std::string& part, const std::function<void()>& f) {
    const std::string message = message_of(f);
    EXPECT_NE(message.find(part), std::string::npos) << "said: " << message;
  };
  says("(3, 4) on cpu times f32 (3, 4)", [&] { kernels::matmul(a, a); });
  says("at least two dimensions", [&] { kernels::matmul(a.flatten(), b); });
  says("one floating dtype", [&] { kernels::matmul(a, uniform_tensor(context, {4, 5}, 2, DType::bf16)); });
  says("different contexts", [&] { kernels::matmul(a, uniform_tensor(other, {4, 5}, 2)); });
  says("batch dimensions (2) and (3)", [&] {
    kernels::matmul(uniform_tensor(context, {2, 3, 4}, 1), uniform_tensor(context, {3, 4, 5}, 1));
  });
  says("does not fit into", [&] { kernels::matmul(a, b, {.into = uniform_tensor(context, {3, 4}, 1)}); });
  says("rows of `into`", [&] { kernels::matmul(a, b, {.into = uniform_tensor(context, {5, 3}, 1).transpose(0, 1)}); });
  says("written as f32, not into", [&] {
    kernels::matmul(a, b, {.into = uniform_tensor(context, {3, 5}, 1, DType::bf16)});
  });
  says("accumulate needs", [&] { kernels::matmul(a, b, {.accumulate = true}); });
  says("go together", [&] { kernels::matmul(a, b, {.epilogue = Epilogue::bias}); });
  says("bias must be",
       [&] { kernels::matmul(a, b, {.epilogue = Epilogue::bias, .bias = uniform_tensor(context, {4}, 1)}); });
  says("empty tensor handle", [&] { kernels::matmul(a, Tensor()); });
}

}  // namespace
}  // namespace keel
