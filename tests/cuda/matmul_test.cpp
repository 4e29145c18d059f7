// Matrix products on a device, against the processor's in fp64.

#include "keel/kernels/matmul.h"
#include "keel/kernels/cuda/matmul_plan.h"
#include "keel/kernels/layout.h"
#include "tests/cuda/device.h"

namespace keel {
namespace {

using namespace keel::testing;
using cuda::MatmulPlan;
using cuda::MatmulTile;

constexpr MatmulTile kTiles[] = {MatmulTile::small, MatmulTile::medium, MatmulTile::large};

// Rounding of one result, relative to the norm of all.
double product_tolerance(DType dtype) { return dtype == DType::f32 ? 2e-6 : dtype == DType::f16 ? 1e-3 : 6e-3; }

// How a matrix lies in memory: its rows or its columns dense, with `gap` numbers of NaN after each.
struct Layout {
  bool turned;
  std::int64_t gap;
};

class MatmulOnDevice : public OnDevice {
 protected:
  Tensor matrix(std::int64_t rows, std::int64_t columns, const Layout& layout, DType dtype, std::uint64_t seed) {
    const std::int64_t lines = layout.turned ? columns : rows, length = layout.turned ? rows : columns;
    std::vector<double> values = uniform(lines * (length + layout.gap), seed);
    for (std::int64_t i = 0; i < lines; ++i)
      for (std::int64_t j = length; j < length + layout.gap; ++j)
        values[static_cast<std::size_t>(i * (length + layout.gap) + j)] = NAN;
    const Tensor x = tensor_of(device, values, {lines, length + layout.gap}, dtype).slice(1, 0, length);
    return layout.turned ? x.transpose(0, 1) : x;
  }
  // The same numbers as f64 on the processor.
  Tensor exact(const Tensor& x) {
    const std::vector<double> values = doubles(x);
    return from_values(host, values, x.shape());
  }
  Tensor reference(const Tensor& a, const Tensor& b) { return kernels::matmul(exact(a), exact(b)); }
  void expect_product(const Tensor& out, const Tensor& a, const Tensor& b) {
    ASSERT_LT(relative_error(doubles(out), doubles(reference(a, b))), product_tolerance(out.dtype()))
        << a << ' ' << a.strides() << " times " << b << ' ' << b.strides();
  }
  // The gap that brings a matrix's lines to multiples of 16 bytes.
  static Layout aligned(std::int64_t rows, std::int64_t columns, bool turned) {
    return {turned, 16 - (turned ? rows : columns) % 8};
  }
};
INSTANTIATE_TEST_SUITE_P(, MatmulOnDevice, ::testing::ValuesIn(test_orders()),
                         [](const auto& info) { return ::testing::PrintToString(info.param); });

TEST_P(MatmulOnDevice, EqualsTheProcessorForEveryDtypeAndLayout) {
  const Dims sizes[] = {{1, 1, 1}, {7, 16, 33}, {64, 64, 64}, {33, 130, 7}, {65, 1, 130}, {1, 70, 16}};
  for (const DType dtype : kKernelTypes)
    for (const Dims& size : sizes)
      for (const bool left : {false, true})
        for (const bool right : {false, true})
          for (const std::int64_t gap : {0, 3}) {
            const Tensor a = matrix(size[0], size[2], {left, gap}, dtype, 1);
            const Tensor b = matrix(size[2], size[1], {right, gap}, dtype, 2);
            expect_product(kernels::matmul(a, b), a, b);
          }
}

TEST_P(MatmulOnDevice, TakesMatricesOfEverySecondNumber) {
  const Tensor a = uniform_tensor(device, {20, 30, 2}, 1).select(2, 1);
  const Tensor b = uniform_tensor(device, {30, 10, 2}, 2).select(2, 0);
  expect_product(kernels::matmul(a, b), a, b);
}

TEST_P(MatmulOnDevice, UsesTensorCoresWhereLinesAreAligned) {
  const auto fits = [&](std::int64_t m, std::int64_t k, bool turned, std::int64_t gap, DType dtype) {
    MatmulArgs args;
    args.a = matrix(m, k, {turned, gap}, dtype, 1);
    args.b = matrix(k, 16, {}, dtype, 2);
    return cuda::fits_tensor_cores(args);
  };
  EXPECT_TRUE(fits(5, 16, false, 0, DType::bf16));
  EXPECT_TRUE(fits(5, 13, false, 3, DType::f16));
  EXPECT_TRUE(fits(5, 13, true, 3, DType::f16));
  EXPECT_TRUE(fits(1, 13, false, 0, DType::f16));
  EXPECT_FALSE(fits(5, 13, false, 0, DType::bf16));
  EXPECT_FALSE(fits(5, 13, true, 0, DType::bf16));
  EXPECT_FALSE(fits(5, 16, false, 0, DType::f32));
}

// Every tile of tensor cores, every pair of layouts, edges in all three extents; NaN around the matrices is not read.
TEST_P(MatmulOnDevice, TilesOfTensorCoresEqualTheProcessor) {
  const Dims sizes[] = {{130, 264, 130}, {7, 33, 200}, {128, 256, 64}};
  for (const DType dtype : kHalves)
    for (const MatmulTile tile : kTiles)
      for (const Dims& size : sizes)
        for (const bool left : {false, true})
          for (const bool right : {false, true}) {
            MatmulArgs args;
            args.a = matrix(size[0], size[2], aligned(size[0], size[2], left), dtype, 1);
            args.b = matrix(size[2], size[1], aligned(size[2], size[1], right), dtype, 2);
            args.out = empty(device, {size[0], size[1]}, dtype);
            ASSERT_TRUE(cuda::fits_tensor_cores(args));
            cuda::multiply_on_tensor_cores(args, {tile, 1});
            expect_product(args.out, args.a, args.b);
          }
}

TEST_P(MatmulOnDevice, TilesDoNotChangeBitsAndSplitsAreAddedInOrder) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    MatmulArgs args;
    args.a = matrix(70, 330, aligned(70, 330, false), dtype, 1);
    args.b = matrix(330, 136, {}, dtype, 2);
    const auto run = [&](MatmulTile tile, int splits) {
      args.out = empty(device, {70, 136});
      if (dtype == DType::f32) cuda::multiply_plain(args, {tile, splits});
      else cuda::multiply_on_tensor_cores(args, {tile, splits});
      EXPECT_LT(relative_error(doubles(args.out), doubles(reference(args.a, args.b))), 2e-6) << splits;
      return doubles(args.out);
    };
    const std::vector<double> whole = run(MatmulTile::small, 1), split = run(MatmulTile::small, 3);
    EXPECT_EQ(whole, run(MatmulTile::medium, 1));
    EXPECT_EQ(whole, run(MatmulTile::large, 1));
    EXPECT_EQ(split, run(MatmulTile::medium, 3));
    EXPECT_EQ(split, run(MatmulTile::large, 3));
    EXPECT_NE(whole, split);
    run(MatmulTile::small, 6);
    run(MatmulTile::small, 40);  // more splits than steps
  }
}

// The product alone, with bias, with bias and GELU, each with its own rounding of what is stored.
TEST_P(MatmulOnDevice, FinishesSumsAsAsked) {
  for (const DType dtype : kKernelTypes)
    for (const DType out_dtype : {dtype, DType::f32})
      for (const std::int64_t n : {40, 37})
        for (const int splits : {1, 2}) {
          MatmulArgs args;
          args.a = matrix(70, 128, {}, dtype, 1);
          args.b = matrix(128, n, {true, 0}, dtype, 2);
          args.out = empty(device, {70, n}, out_dtype);
          args.alpha = 0.25;
          const auto run = [&] {
            if (cuda::fits_tensor_cores(args)) cuda::multiply_on_tensor_cores(args, {MatmulTile::small, splits});
            else cuda::multiply_plain(args, {MatmulTile::small, splits});
          };
          const double allowed = product_tolerance(out_dtype);
          std::vector<double> expected = doubles(reference(args.a, args.b));
          for (double& value : expected) value *= 0.25;
          run();
          EXPECT_LT(relative_error(doubles(args.out), expected), allowed);

          args.accumulate = true;
          run();
          std::vector<double> twice = expected;
          for (double& value : twice) value *= 2;
          EXPECT_LT(relative_error(doubles(args.out), twice), allowed);

          args.accumulate = false;
          args.bias = uniform_tensor(device, {n}, 3, dtype);
          const std::vector<double> bias = doubles(args.bias);
          for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += bias[i % bias.size()];
          args.epilogue = Epilogue::bias;
          run();
          const std::vector<double> before = doubles(args.out);
          EXPECT_LT(relative_error(before, expected), allowed);

          args.epilogue = Epilogue::bias_gelu;
          const Tensor gelu = kernels::unary<GeluTanh>(tensor_of(host, before, {70, n}, out_dtype));
          run();
          EXPECT_EQ(doubles(args.out), doubles(gelu)) << "GELU is of the rounded value";
          args.pre_activation = empty(device, {70, n}, out_dtype);
          args.out = empty(device, {70, n}, out_dtype);
          run();
          EXPECT_EQ(doubles(args.out), doubles(gelu));
          EXPECT_EQ(doubles(args.pre_activation), before);
        }
}

TEST_P(MatmulOnDevice, WritesIntoRowsOfSomethingWiderAndNothingElse) {
  for (const DType dtype : kKernelTypes)
    for (const std::int64_t first : {8, 3}) {
      const Tensor a = matrix(21, 16, {}, dtype, 1), b = matrix(16, 24, {}, dtype, 2);
      const Tensor wide = tensor_of(device, std::vector<double>(21 * 40, 5), {21, 40}, dtype);
      kernels::matmul(a, b, {.into = wide.slice(1, first, first + 24)});
      expect_product(wide.slice(1, first, first + 24), a, b);
      EXPECT_EQ(doubles(wide.slice(1, 0, first)), std::vector<double>(static_cast<std::size_t>(21 * first), 5));
      EXPECT_EQ(doubles(wide.slice(1, first + 24, 40)),
                std::vector<double>(static_cast<std::size_t>(21 * (16 - first)), 5));
    }
}

TEST_P(MatmulOnDevice, MultipliesBatchesOfInterleavedHeads) {
  for (const DType dtype : kKernelTypes)
    for (const std::int64_t size : {8, 5}) {
      // (batch, heads, time, size) views of (batch, time, heads, size).
      const Tensor a = uniform_tensor(device, {2, 19, 3, size}, 15, dtype).transpose(1, 2);
      const Tensor b = uniform_tensor(device, {2, 21, 3, size}, 16, dtype).transpose(1, 2).transpose(2, 3);
      const Tensor all = kernels::matmul(a, b);
      ASSERT_EQ(all.shape(), Dims({2, 3, 19, 21}));
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 3; ++j)
          expect_product(all.select(0, i).select(0, j), a.select(0, i).select(0, j), b.select(0, i).select(0, j));
    }
}

TEST_P(MatmulOnDevice, SharesAMatrixAmongABatchOnEitherSide) {
  for (const DType dtype : kKernelTypes) {
    const Tensor shared = uniform_tensor(device, {16, 9}, 17, dtype);
    const Tensor dense = uniform_tensor(device, {4, 5, 16}, 18, dtype);
    const Tensor scattered = uniform_tensor(device, {5, 4, 16}, 19, dtype).transpose(0, 1);
    for (const Tensor& x : {dense, scattered}) {
      const Tensor right = kernels::matmul(x, shared);
      const Tensor left = kernels::matmul(shared.transpose(0, 1), x.transpose(1, 2));
      for (int i = 0; i < 4; ++i) {
        expect_product(right.select(0, i), x.select(0, i), shared);
        expect_product(left.select(0, i).transpose(0, 1), x.select(0, i), shared);
      }
    }
  }
}

TEST_P(MatmulOnDevice, AddsBatchesInSplits) {
  MatmulArgs args;
  args.a = uniform_tensor(device, {3, 16, 192}, 1, DType::bf16);
  args.b = uniform_tensor(device, {3, 192, 20}, 2, DType::bf16);
  args.out = uniform_tensor(device, {3, 16, 20}, 3);
  args.accumulate = true;
  const Tensor before = exact(args.out);
  cuda::multiply_plain(args, {MatmulTile::small, 3});
  std::vector<double> expected = doubles(reference(args.a, args.b));
  const std::vector<double> first = doubles(before);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += first[i];
  EXPECT_LT(relative_error(doubles(args.out), expected), 2e-6);
}

TEST_P(MatmulOnDevice, GivesZerosForAnEmptyInnerExtent) {
  for (const DType dtype : kKernelTypes) {
    const Tensor a = uniform_tensor(device, {3, 0}, 20, dtype), b = uniform_tensor(device, {0, 2}, 20, dtype);
    EXPECT_EQ(doubles(kernels::matmul(a, b)), std::vector<double>(6, 0));
    const Tensor into = uniform_tensor(device, {3, 2}, 21, dtype);
    const std::vector<double> before = doubles(into);
    kernels::matmul(a, b, {.into = into, .accumulate = true});
    EXPECT_EQ(doubles(into), before);
    EXPECT_EQ(
        kernels::matmul(uniform_tensor(device, {0, 4}, 1, dtype), uniform_tensor(device, {4, 2}, 1, dtype)).shape(),
        Dims({0, 2}));
  }
}

TEST_P(MatmulOnDevice, CarriesInfinityAndNan) {
  for (const DType dtype : kKernelTypes) {
    std::vector<double> values(4 * 16, 1);
    values[16] = NAN;
    values[32] = INFINITY;
    values[48] = INFINITY, values[49] = -INFINITY;
    const Tensor a = tensor_of(device, values, {4, 16}, dtype);
    const Tensor b = tensor_of(device, std::vector<double>(16 * 8, 1), {16, 8}, dtype);
    const std::vector<double> result = doubles(kernels::matmul(a, b));
    EXPECT_EQ(result[0], 16);
    EXPECT_TRUE(std::isnan(result[8]));
    EXPECT_EQ(result[16], INFINITY);
    EXPECT_TRUE(std::isnan(result[24]));
  }
}

TEST_P(MatmulOnDevice, RefusesMoreBlocksThanAGridHas) {
  const std::int64_t batches = (std::int64_t{1} << 31) - 300;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor a = uniform_tensor(device, {1, 257, 8}, 1, dtype).expand({batches, 257, 8});
    const Tensor b = uniform_tensor(device, {8, 8}, 2, dtype), one = empty(device, {8}, dtype);
    const Tensor out = from_external(device, one.raw(), {batches, 257, 8}, {257 * 8, 8, 1}, dtype);  // nobody writes it
    try {
      kernels::matmul(a, b, {.into = out});
      FAIL() << "nothing was thrown";
    } catch (const Error& error) { EXPECT_EQ(error.kind(), ErrorKind::unsupported) << error.what(); }
  }
}

TEST_P(MatmulOnDevice, SaysWhatItDoesNotMultiply) {
  const Tensor a = empty(device, {2, 2}, DType::f64);
  EXPECT_THROW(kernels::matmul(a, a), Error);
  EXPECT_NE(kernels::matmul_backend(device, DType::bf16).find("tensor cores"), std::string::npos);
  EXPECT_NE(kernels::matmul_backend(device, DType::f64).find("not multiplied"), std::string::npos);
}

// The entry of a context that may choose: cuBLASLt's where it was built in. Twice, since the first call may try many
// ways.
TEST_P(MatmulOnDevice, GivesTheSameNumbersByWhateverIsFastest) {
  ContextOptions options;
  options.device = kTestDevice;
  const Context fastest = Context::create(options);
  for (const DType dtype : kKernelTypes)
    for (const bool left : {false, true})
      for (const bool right : {false, true}) {
        std::vector<double> first;
        for (const int repeat : {1, 2}) {
          const auto operand = [&](std::int64_t rows, std::int64_t cols, bool turned, std::uint64_t seed) {
            return turned ? uniform_tensor(fastest, {cols, rows}, seed, dtype).transpose(0, 1)
                          : uniform_tensor(fastest, {rows, cols}, seed, dtype);
          };
          const Tensor a = operand(8, 24, left, 1), b = operand(24, 16, right, 2);
          const Tensor bias = uniform_tensor(fastest, {16}, 3, dtype);
          const Tensor product = kernels::matmul(a, b);
          expect_product(product, a, b);
          if (repeat == 1) first = doubles(product);
          EXPECT_EQ(doubles(product), first) << "a choice is kept";
          const Tensor sum = uniform_tensor(fastest, {8, 16}, 4);
          std::vector<double> twice = doubles(reference(a, b)), begin = doubles(sum);
          for (std::size_t i = 0; i < twice.size(); ++i) twice[i] += begin[i];
          kernels::matmul(a, b, {.into = sum, .accumulate = true});
          EXPECT_LT(relative_error(doubles(sum), twice), 2e-6) << dtype << " run " << repeat;

          std::vector<double> biased = doubles(reference(a, b));
          for (std::size_t i = 0; i < biased.size(); ++i) biased[i] += doubles(bias)[i % 16];
          Tensor before;
          const Tensor gelu =
              kernels::matmul(a, b, {.epilogue = Epilogue::bias_gelu, .bias = bias, .pre_activation = &before});
          EXPECT_LT(relative_error(doubles(before), biased), product_tolerance(dtype));
          EXPECT_LT(relative_error(doubles(gelu),
                                   doubles(kernels::unary<GeluTanh>(tensor_of(host, biased, {8, 16}, DType::f64)))),
                    2 * product_tolerance(dtype));
          EXPECT_LT(relative_error(doubles(kernels::matmul(a, b, {.epilogue = Epilogue::bias, .bias = bias})), biased),
                    product_tolerance(dtype));
          EXPECT_LT(relative_error(doubles(kernels::matmul(a, b, {.epilogue = Epilogue::bias_gelu, .bias = bias})),
                                   doubles(gelu)),
                    2 * product_tolerance(dtype));
        }
      }
  const Tensor a = uniform_tensor(fastest, {3, 8, 16}, 1, DType::bf16),
               b = uniform_tensor(fastest, {16, 8}, 2, DType::bf16);
  const Tensor batched = kernels::matmul(a.slice(1, 0, 7), b);
  for (int i = 0; i < 3; ++i) expect_product(batched.select(0, i), a.select(0, i).slice(0, 0, 7), b);
}

TEST(MatmulPlans, FillTheMachineBySmallerTilesAndBySplits) {
  const auto plan = [](std::int64_t m, std::int64_t n, std::int64_t k) { return cuda::plan_matmul(m, n, k, 1); };
  EXPECT_EQ(plan(4096, 4096, 4096).tile, MatmulTile::large);
  EXPECT_EQ(plan(4096, 4096, 4096).splits, 1);
  EXPECT_EQ(plan(65536, 768, 768).splits, 1);
  EXPECT_EQ(plan(64, 64, 64).tile, MatmulTile::small);
  EXPECT_EQ(plan(64, 64, 512).splits, 1);
  EXPECT_GT(plan(768, 768, 65536).splits, 1);
  EXPECT_GT(plan(768, 3072, 65536).splits, 1);
}

}  // namespace
}  // namespace keel
