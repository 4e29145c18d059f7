// Matrices that are made orthogonal, against the formula in plain loops of double precision.

#include "keel/kernels/newton_schulz.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "keel/kernels/elementwise.h"
#include "keel/kernels/matmul.h"
#include "tests/kernels/row_support.h"

namespace keel {
namespace {

using testing::doubles;
using testing::relative_error;
using testing::same_bits;
using testing::tensor_of;
using testing::uniform_tensor;

struct PlainMatrix {
  std::size_t rows, columns;
  std::vector<double> numbers;
  double& at(std::size_t i, std::size_t j) { return numbers[i * columns + j]; }
  double at(std::size_t i, std::size_t j) const { return numbers[i * columns + j]; }
};

PlainMatrix plain_product(const PlainMatrix& a, const PlainMatrix& b) {
  PlainMatrix c{a.rows, b.columns, std::vector<double>(a.rows * b.columns)};
  for (std::size_t i = 0; i < a.rows; ++i)
    for (std::size_t j = 0; j < b.columns; ++j)
      for (std::size_t k = 0; k < a.columns; ++k) c.at(i, j) += a.at(i, k) * b.at(k, j);
  return c;
}

PlainMatrix transposed(const PlainMatrix& a) {
  PlainMatrix t{a.columns, a.rows, std::vector<double>(a.numbers.size())};
  for (std::size_t i = 0; i < a.rows; ++i)
    for (std::size_t j = 0; j < a.columns; ++j) t.at(j, i) = a.at(i, j);
  return t;
}

// As Jordan et al. state it, without choosing a side: (a + b A + c A A) x with A = x x^T.
std::vector<double> plain_newton_schulz(PlainMatrix x, int steps) {
  double squares = 0;
  for (const double each : x.numbers) squares += each * each;
  for (double& each : x.numbers) each /= std::max(std::sqrt(squares), 1e-7);
  for (int step = 0; step < steps; ++step) {
    const PlainMatrix gram = plain_product(x, transposed(x)), square = plain_product(gram, gram);
    PlainMatrix polynomial = gram;
    for (std::size_t i = 0; i < gram.numbers.size(); ++i)
      polynomial.numbers[i] = -4.7750 * gram.numbers[i] + 2.0315 * square.numbers[i];
    for (std::size_t i = 0; i < gram.rows; ++i) polynomial.at(i, i) += 3.4445;
    x = plain_product(polynomial, x);
  }
  return x.numbers;
}

PlainMatrix plain_of(const Tensor& x) {
  return {static_cast<std::size_t>(x.dim(0)), static_cast<std::size_t>(x.dim(1)), doubles(x)};
}

const Dims kMatrixShapes[] = {{7, 7}, {5, 23}, {23, 5}, {1, 9}, {9, 1}, {1, 1}, {40, 64}};

TEST(NewtonSchulz, FollowsTheFormulaInEveryDtypeAndOnEitherSide) {
  const Context context = testing::context(1);
  for (const auto& [dtype, bound] : {std::pair{DType::f64, 1e-6}, {DType::f32, 1e-4}, {DType::bf16, 0.1}})
    for (const Dims& shape : kMatrixShapes) {
      const Tensor x = uniform_tensor(context, shape, 3, dtype), result = kernels::newton_schulz(x);
      EXPECT_EQ(result.shape(), shape);
      EXPECT_EQ(result.dtype(), dtype);
      EXPECT_TRUE(result.is_contiguous());
      EXPECT_LT(relative_error(doubles(result), plain_newton_schulz(plain_of(x), 5)), bound) << shape << dtype;
    }
}

// x = U S V^T with U and V of one reflection each: the singular values are known.
TEST(NewtonSchulz, BringsSingularValuesNearToOneAndKeepsTheirDirections) {
  const Context context = testing::context(1);
  constexpr std::size_t kRows = 12, kColumns = 17;
  const auto reflection = [](std::size_t n, std::uint64_t seed) {
    const std::vector<double> v = testing::uniform(static_cast<std::int64_t>(n), seed);
    double squares = 0;
    for (const double each : v) squares += each * each;
    PlainMatrix h{n, n, std::vector<double>(n * n)};
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) h.at(i, j) = (i == j ? 1.0 : 0.0) - 2 * v[i] * v[j] / squares;
    return h;
  };
  const PlainMatrix u = reflection(kRows, 1), v = reflection(kColumns, 2);
  PlainMatrix s{kRows, kColumns, std::vector<double>(kRows * kColumns)};
  for (std::size_t i = 0; i < kRows; ++i) s.at(i, i) = 1 / (1.0 + static_cast<double>(i));
  const PlainMatrix x = plain_product(plain_product(u, s), v);
  const Tensor result = kernels::newton_schulz(tensor_of(context, x.numbers, {kRows, kColumns}, DType::f64));
  const PlainMatrix values = plain_product(plain_product(u, plain_of(result)), v);  // reflections undo themselves
  for (std::size_t i = 0; i < kRows; ++i)
    for (std::size_t j = 0; j < kColumns; ++j) {
      if (i != j) EXPECT_NEAR(values.at(i, j), 0, 1e-6) << i << ' ' << j;
      else EXPECT_TRUE(values.at(i, i) > 0.6 && values.at(i, i) < 1.3) << i << ": " << values.at(i, i);
    }
}

TEST(NewtonSchulz, LeavesZeroAsItIsAndDoesNotDependOnTheLength) {
  const Context context = testing::context(1);
  for (const double each : doubles(kernels::newton_schulz(zeros(context, {4, 6})))) EXPECT_EQ(each, 0);
  const Tensor x = uniform_tensor(context, {6, 8}, 1), longer = kernels::clone(x);
  kernels::scale(longer, 1024);  // a power of two
  EXPECT_TRUE(same_bits(kernels::newton_schulz(x), kernels::newton_schulz(longer)));
  EXPECT_EQ(kernels::newton_schulz(empty(context, {0, 6})).shape(), (Dims{0, 6}));
}

TEST(NewtonSchulz, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const DType dtype : {DType::f32, DType::bf16})
    EXPECT_TRUE(same_bits(kernels::newton_schulz(uniform_tensor(testing::context(1), {96, 130}, 1, dtype)),
                          kernels::newton_schulz(uniform_tensor(testing::context(2), {96, 130}, 1, dtype))));
}

TEST(NewtonSchulz, RefusesWhatIsNoMatrix) {
  const Context context = testing::context(1);
  EXPECT_THROW(kernels::newton_schulz(zeros(context, {4})), Error);
  EXPECT_THROW(kernels::newton_schulz(zeros(context, {4, 4}, DType::i64)), Error);
}

}  // namespace
}  // namespace keel
