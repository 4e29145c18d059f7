// How cuBLASLt is asked for a product, held against where the elements of the tensors are.

#include "keel/kernels/cuda/cublaslt_problem.h"

#include "tests/cuda/device.h"

namespace keel {
namespace {

using namespace keel::testing;
using cuda::cublaslt::Lines;
using cuda::cublaslt::Problem;
using cuda::cublaslt::problem_of;

// Element (i, j) of each matrix lies where the library looks for it: matrices `batch_stride` apart, in lines `pitch`
// apart, which do not overlap.
void expect_describes(const Lines& lines, const Tensor& x) {
  const std::int64_t rows = x.dim(-2), cols = x.dim(-1), matrices = x.numel() / (rows * cols);
  EXPECT_GE(lines.pitch, lines.turned ? rows : cols) << x << x.strides();
  for (std::int64_t matrix = 0; matrix < matrices; ++matrix) {
    std::int64_t begin = 0, rest = matrix;
    for (int d = x.rank() - 3; d >= 0; --d) {
      begin += rest % x.dim(d) * x.stride(d);
      rest /= x.dim(d);
    }
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j) {
        const std::int64_t in_lines = lines.turned ? j * lines.pitch + i : i * lines.pitch + j;
        ASSERT_EQ(matrix * lines.batch_stride + in_lines, begin + i * x.stride(-2) + j * x.stride(-1))
            << x << x.strides() << " matrix " << matrix << " row " << i << " column " << j;
      }
  }
}

// Ways in which matrices (batch..., rows, cols) may lie: dense, columns dense, within wider rows, one shared by all.
std::vector<Tensor> layouts(const Dims& batch, std::int64_t rows, std::int64_t cols) {
  const auto shaped = [&](std::int64_t a, std::int64_t b) {
    Dims shape = batch;
    shape.push_back(a);
    shape.push_back(b);
    return shape;
  };
  const auto make = [](const Dims& shape) { return zeros(context(), shape, DType::bf16); };
  std::vector<Tensor> all = {make(shaped(rows, cols)), make(shaped(cols, rows)).transpose(-2, -1),
                             make(shaped(rows, cols + 3)).slice(-1, 0, cols),
                             make(shaped(cols, rows + 8)).slice(-1, 8, rows + 8).transpose(-2, -1)};
  if (!batch.empty()) all.push_back(make({rows, cols}).expand(shaped(rows, cols)));
  return all;
}

TEST(CublasltProblem, DescribesWhereEveryElementLies) {
  constexpr std::int64_t kExtents[] = {1, 3, 8};
  int described = 0;
  for (const Dims& batch : {Dims{}, Dims{1}, Dims{3}, Dims{2, 3}})
    for (const std::int64_t m : kExtents)
      for (const std::int64_t n : kExtents)
        for (const std::int64_t k : kExtents)
          for (const Tensor& a : layouts(batch, m, k))
            for (const Tensor& b : layouts(batch, k, n)) {
              Dims shape = batch;
              shape.push_back(m);
              shape.push_back(n);
              MatmulArgs args;
              args.a = a;
              args.b = b;
              args.out = zeros(context(), shape, DType::bf16);
              const std::optional<Problem> problem = problem_of(args);
              ASSERT_TRUE(problem) << a << a.strides() << " times " << b << b.strides();
              EXPECT_EQ(problem->batches, product(batch));
              expect_describes(problem->a, a);
              expect_describes(problem->b, b);
              expect_describes(problem->out, args.out);
              ++described;
            }
  EXPECT_EQ(described, 27 * (16 + 3 * 25));
}

TEST(CublasltProblem, TellsProductsApartWhoseOperandsLieOtherwise) {
  const Tensor b = zeros(context(), {8, 16}, DType::bf16), out = zeros(context(), {8, 16}, DType::bf16);
  const auto problem = [&](const Tensor& a, bool accumulate = false) {
    MatmulArgs args;
    args.a = a;
    args.b = b;
    args.out = out;
    args.accumulate = accumulate;
    return problem_of(args).value();
  };
  const Tensor wide = zeros(context(), {8, 17}, DType::bf16);
  EXPECT_EQ(problem(wide.slice(1, 0, 8)), problem(wide.slice(1, 0, 8)));
  EXPECT_NE(problem(wide.slice(1, 0, 8)), problem(wide.slice(1, 1, 9)));  // at another boundary
  EXPECT_NE(problem(wide.slice(1, 0, 8)), problem(zeros(context(), {8, 8}, DType::bf16)));
  EXPECT_NE(problem(wide.slice(1, 0, 8)), problem(wide.slice(1, 0, 8), true));
}

TEST(CublasltProblem, LeavesToKeelWhatTheLibraryCannotBeAsked) {
  MatmulArgs args;
  args.a = zeros(context(), {8, 16}, DType::bf16);
  args.b = zeros(context(), {16, 8}, DType::bf16);
  args.out = zeros(context(), {8, 8}, DType::bf16);
  args.bias = zeros(context(), {8}, DType::bf16);
  args.epilogue = Epilogue::bias;
  EXPECT_TRUE(problem_of(args));
  const auto refuses = [&](auto&& change) {
    MatmulArgs other = args;
    change(other);
    return !problem_of(other);
  };
  const auto every_second = [](const Tensor& x) {
    return Tensor(x.storage(), {8, 8}, {16, 2}, 0, x.dtype());  // neither rows nor columns are dense
  };
  EXPECT_TRUE(refuses([&](MatmulArgs& x) {
    x.a = every_second(args.a);
    x.b = zeros(context(), {8, 8}, DType::bf16);
  }));
  EXPECT_TRUE(refuses([](MatmulArgs& x) { x.out = zeros(context(), {8, 8}); }));  // a bias in the dtype of a
  EXPECT_TRUE(refuses([](MatmulArgs& x) { x.bias = zeros(context(), {9}, DType::bf16).slice(0, 1, 9); }));
  EXPECT_TRUE(refuses([](MatmulArgs& x) {
    x.a = zeros(context(), {8, 0}, DType::bf16);
    x.b = zeros(context(), {0, 8}, DType::bf16);
  }));
  EXPECT_TRUE(refuses([](MatmulArgs& x) {  // matrices that do not follow each other at one distance
    x.epilogue = Epilogue::none;
    x.a = zeros(context(), {2, 8, 16}, DType::bf16).view({2, 1, 8, 16}).expand({2, 3, 8, 16});
    x.b = zeros(context(), {2, 3, 16, 8}, DType::bf16);
    x.out = zeros(context(), {2, 3, 8, 8}, DType::bf16);
  }));
}

}  // namespace
}  // namespace keel
