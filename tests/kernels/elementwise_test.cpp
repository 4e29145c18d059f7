#include "keel/kernels/elementwise.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/kernels/op_table.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::BinaryRow;
using testing::context;
using testing::doubles;
using testing::kFloats;
using testing::UnaryRow;

const Dims kShape = {3, 13, 53};  // more than two blocks, and no multiple of one

// One shape in every layout that kernels meet; `empty` has no elements.
enum class Layout { contiguous, transposed, sliced, broadcast, scalar_like, empty };
constexpr Layout kLayouts[] = {Layout::contiguous, Layout::transposed,  Layout::sliced,
                               Layout::broadcast,  Layout::scalar_like, Layout::empty};

Tensor make(const Context& context, Layout layout, DType dtype, std::uint64_t seed, double low, double high) {
  const auto filled = [&](const Dims& shape) {
    return testing::uniform_tensor(context, shape, seed, dtype, low, high);
  };
  switch (layout) {
    case Layout::contiguous: return filled(kShape);
    case Layout::transposed: return filled({kShape[2], kShape[0], kShape[1]}).permute({1, 2, 0});
    case Layout::sliced: return filled({kShape[0], kShape[1] + 2, kShape[2] + 5}).slice(1, 1, 14).slice(2, 3, 56);
    case Layout::broadcast: return filled({kShape[0], 1, kShape[2]}).expand(kShape);
    case Layout::scalar_like: return filled({}).expand(kShape);
    case Layout::empty: return filled({kShape[0], 0, kShape[2]});
  }
  return {};
}

// Rounding of the result to the dtype, plus a few roundings of the arithmetic type. Where an input itself
// is off by a rounding, `input_error` bounds what follows from that instead.
double allowed_error(DType dtype, double expected, double input_error) {
  const double size = 1 + std::fabs(expected);
  if (input_error > 0) return input_error * size;
  switch (dtype) {
    case DType::f32: return 2e-6 * size;
    case DType::bf16: return std::fabs(expected) * 0x1p-8 + 2e-6 * size;
    case DType::f16: return std::fabs(expected) * 0x1p-11 + 2e-6 * size;
    default: return 1e-13 * size;
  }
}

// The first element that is off, as text; empty when all are within tolerance.
std::string first_error(const std::vector<double>& got, const std::vector<double>& expected, DType dtype,
                        double input_error = 0) {
  if (got.size() != expected.size()) return concat(got.size(), " elements instead of ", expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(std::fabs(got[i] - expected[i]) <= allowed_error(dtype, expected[i], input_error)))
      return concat("element ", i, " is ", got[i], " instead of ", expected[i]);
  return "";
}

void check_unary(const Context& context, const UnaryRow& row, DType dtype, Layout layout) {
  const Tensor x = make(context, layout, dtype, 7, row.low, row.high);
  const Tensor grad =
      make(context, layout == Layout::contiguous ? Layout::transposed : Layout::contiguous, dtype, 8, -1, 1);
  const Tensor y = kernels::unary(row.op, x, row.parameter);
  EXPECT_EQ(y.shape(), x.shape());
  EXPECT_EQ(y.dtype(), dtype);
  EXPECT_TRUE(y.is_contiguous());

  const std::vector<double> xs = doubles(x);
  std::vector<double> expected;
  for (const double value : xs) expected.push_back(row.value(value, row.parameter));
  EXPECT_EQ(first_error(doubles(y), expected, dtype), "");
  if (layout == Layout::empty) {
    EXPECT_EQ(kernels::unary_backward(row.op, x, x, row.parameter).numel(), 0);
    return;
  }

  const bool keeps_output = keep_of_unary(row.op) == Keep::output;
  const bool narrow = dtype == DType::bf16 || dtype == DType::f16;
  const Tensor kept = keeps_output ? y : (keep_of_unary(row.op) == Keep::input ? x : Tensor());
  const std::vector<double> grads = doubles(grad);
  expected.clear();
  for (std::size_t i = 0; i < xs.size(); ++i) expected.push_back(grads[i] * row.derivative(xs[i], row.parameter));
  EXPECT_EQ(first_error(doubles(kernels::unary_backward(row.op, grad, kept, row.parameter)), expected, dtype,
                        keeps_output && narrow ? 0x1p-6 : 0),
            "");
}

TEST(OpTable, HasOneRowForEveryOperation) {
  std::multiset<int> unary, binary;
  for (const UnaryRow& row : testing::unary_rows()) unary.insert(row.op);
  for (const BinaryRow& row : testing::binary_rows()) binary.insert(row.op);
  for (int op = 0; op < UnaryOps::size; ++op) EXPECT_EQ(unary.count(op), 1u) << name_of_unary(op) << " needs a row";
  for (int op = 0; op < BinaryOps::size; ++op) EXPECT_EQ(binary.count(op), 1u) << name_of_binary(op) << " needs a row";
}

TEST(OpTable, UnaryOperationsEqualDoubleReferencesInEveryDtypeAndLayout) {
  const Context cpu = context();
  for (const UnaryRow& row : testing::unary_rows())
    for (const DType dtype : kFloats)
      for (const Layout layout : kLayouts) {
        SCOPED_TRACE(concat(name_of_unary(row.op), ' ', dtype, " layout ", static_cast<int>(layout)));
        check_unary(cpu, row, dtype, layout);
      }
}

void check_binary(const BinaryRow& row, const Tensor& a, const Tensor& b) {
  const DType dtype = a.dtype();
  const Tensor out = kernels::binary(row.op, a, b);
  const Dims shape = kernels::broadcast_shapes(a.shape(), b.shape());
  ASSERT_EQ(out.shape(), shape);
  EXPECT_EQ(out.dtype(), is_comparison_op(row.op) ? DType::u8 : dtype);
  const std::vector<double> as = doubles(a.expand(shape)), bs = doubles(b.expand(shape));
  std::vector<double> expected(as.size());
  for (std::size_t i = 0; i < as.size(); ++i) expected[i] = row.value(as[i], bs[i]);
  EXPECT_EQ(first_error(doubles(out), expected, dtype), "");
  if (is_comparison_op(row.op)) {
    EXPECT_THROW(kernels::binary_backward(row.op, 0, a, a, b), Error);
    return;
  }
  if (!is_floating(dtype)) return;
  const Tensor grad = testing::uniform_tensor(a.context(), shape, 9, dtype);
  const std::vector<double> grads = doubles(grad);
  for (int input = 0; input < 2; ++input) {
    for (std::size_t i = 0; i < as.size(); ++i)
      expected[i] = grads[i] * (input == 0 ? row.derivative_a : row.derivative_b)(as[i], bs[i]);
    EXPECT_EQ(first_error(doubles(kernels::binary_backward(row.op, input, grad, a, b)), expected, dtype), "")
        << "gradient of input " << input;
  }
}

TEST(OpTable, BinaryOperationsEqualDoubleReferencesInEveryDtypeAndLayout) {
  const Context cpu = context();
  for (const BinaryRow& row : testing::binary_rows())
    for (const DType dtype : kFloats) {
      const auto operand = [&](Layout layout, std::uint64_t seed) {
        return make(cpu, layout, dtype, seed, row.low, row.high);
      };
      for (const Layout layout : kLayouts) {
        SCOPED_TRACE(concat(name_of_binary(row.op), ' ', dtype, " layout ", static_cast<int>(layout)));
        check_binary(row, operand(layout, 1), operand(layout, 2));
        if (layout != Layout::empty) check_binary(row, operand(Layout::contiguous, 1), operand(layout, 2));
      }
      SCOPED_TRACE(concat(name_of_binary(row.op), ' ', dtype, " both broadcast"));
      check_binary(row, testing::uniform_tensor(cpu, {5, 1, 9}, 1, dtype, row.low, row.high),
                   testing::uniform_tensor(cpu, {7, 1}, 2, dtype, row.low, row.high));
      check_binary(row, testing::uniform_tensor(cpu, {0, 1}, 1, dtype, row.low, row.high),
                   testing::uniform_tensor(cpu, {7}, 2, dtype, row.low, row.high));
    }
}

TEST(OpTable, DerivativesEqualCentralDifferencesInDouble) {
  const Context cpu = context();
  const auto row_values = [&](double low, double high) { return testing::uniform(200, 3, low, high); };
  const double h = 1e-6;
  for (const UnaryRow& row : testing::unary_rows()) {
    const auto value_at = [&](double x) {
      return kernels::unary(row.op, testing::tensor_of(cpu, {x}, {}, DType::f64), row.parameter);
    };
    for (const double x : row_values(row.low, row.high)) {
      const Tensor kept =
          keep_of_unary(row.op) == Keep::output ? value_at(x) : testing::tensor_of(cpu, {x}, {}, DType::f64);
      const Tensor one = testing::tensor_of(cpu, {1}, {}, DType::f64);
      const double slope = (value_at(x + h).item() - value_at(x - h).item()) / (2 * h);
      EXPECT_NEAR(kernels::unary_backward(row.op, one, kept, row.parameter).item(), slope, 1e-7 * (1 + slope * slope))
          << name_of_unary(row.op) << " at " << x;
    }
  }
  for (const BinaryRow& row : testing::binary_rows()) {
    if (is_comparison_op(row.op)) continue;
    const std::vector<double> a = testing::uniform(200, 4, row.low, row.high);
    const std::vector<double> b = testing::uniform(200, 5, row.low, row.high);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto at = [&](double value) { return testing::tensor_of(cpu, {value}, {}, DType::f64); };
      for (int input = 0; input < 2; ++input) {
        const double da = input == 0 ? h : 0, db = input == 1 ? h : 0;
        const double slope = (kernels::binary(row.op, at(a[i] + da), at(b[i] + db)).item() -
                              kernels::binary(row.op, at(a[i] - da), at(b[i] - db)).item()) /
                             (2 * h);
        EXPECT_NEAR(kernels::binary_backward(row.op, input, at(1), at(a[i]), at(b[i])).item(), slope,
                    1e-7 * (1 + slope * slope))
            << name_of_binary(row.op) << " at " << a[i] << ", " << b[i];
      }
    }
  }
}

template <class Op>
void check_integers(const Context& cpu, DType dtype) {
  const Tensor a = testing::tensor_of(cpu, {-7, 3, 3, 120000}, {4}, dtype);
  const Tensor b = testing::tensor_of(cpu, {2, 3, -5, 1}, {4}, dtype);
  const std::vector<double> as = doubles(a), bs = doubles(b);
  for (const BinaryRow& row : testing::binary_rows()) {
    if (row.op != index_of<Op, BinaryOps>) continue;
    std::vector<double> expected;
    for (std::size_t i = 0; i < as.size(); ++i) expected.push_back(row.value(as[i], bs[i]));
    EXPECT_EQ(doubles(kernels::binary<Op>(a, b)), expected) << Op::name << ' ' << dtype;
  }
}

TEST(Elementwise, DerivativesOfGeluAndSiluHaveTheirLimitsFarFromZero) {
  for (const int op : testing::gated_operations())
    for (const DType dtype : kFloats)
      for (const double size : testing::huge_arguments()) {
        SCOPED_TRACE(concat(name_of_unary(op), ' ', dtype, " at ", size));
        // Enough of each for a vector, and one at the end.
        const Tensor x = testing::tensor_of(context(), {size, -size, NAN}, {1, 3}, dtype).expand({17, 3});
        const Tensor grad = kernels::full(x.context(), x.shape(), 0.75, dtype);
        const std::vector<double> got = doubles(kernels::unary_backward(op, grad, x));
        for (std::size_t i = 0; i < got.size(); i += 3) {
          EXPECT_EQ(got[i], 0.75);
          EXPECT_EQ(got[i + 1], 0);
          EXPECT_TRUE(std::isnan(got[i + 2]));
        }
      }
}

TEST(Elementwise, IntegersHaveTheOperationsThatAreExact) {
  const Context cpu = context();
  for (const DType dtype : {DType::i32, DType::i64}) {
    check_integers<Add>(cpu, dtype);
    check_integers<Sub>(cpu, dtype);
    check_integers<Mul>(cpu, dtype);
    check_integers<Maximum>(cpu, dtype);
    check_integers<Minimum>(cpu, dtype);
    check_integers<Equal>(cpu, dtype);
    check_integers<NotEqual>(cpu, dtype);
    check_integers<Less>(cpu, dtype);
    check_integers<LessEqual>(cpu, dtype);
    check_integers<Greater>(cpu, dtype);
    check_integers<GreaterEqual>(cpu, dtype);
    const Tensor x = testing::tensor_of(cpu, {4, -5}, {2}, dtype);
    EXPECT_EQ(doubles(kernels::unary<Neg>(x)), (std::vector<double>{-4, 5}));
    EXPECT_THROW(kernels::unary<Exp>(x), Error);
    EXPECT_THROW(kernels::binary<Div>(x, x), Error);
    EXPECT_THROW(kernels::unary_backward(index_of<Neg, UnaryOps>, x, x), Error);
  }
  const std::int64_t large = (std::int64_t{1} << 53) + 1;  // not a double
  const Tensor x = from_values(cpu, std::vector<std::int64_t>{large}, {1});
  EXPECT_EQ(kernels::binary<Add>(x, x).to_vector<std::int64_t>()[0], 2 * large);
}

TEST(Elementwise, NanPassesThroughMaximumMinimumAndRelu) {
  const Context cpu = context();
  const Tensor nan = testing::tensor_of(cpu, {NAN}, {1}), one = testing::tensor_of(cpu, {1}, {1});
  EXPECT_TRUE(std::isnan(kernels::binary<Maximum>(nan, one).item()));
  EXPECT_TRUE(std::isnan(kernels::binary<Maximum>(one, nan).item()));
  EXPECT_TRUE(std::isnan(kernels::binary<Minimum>(nan, one).item()));
  EXPECT_TRUE(std::isnan(kernels::binary<Minimum>(one, nan).item()));
  EXPECT_TRUE(std::isnan(kernels::unary<Relu>(nan).item()));
  EXPECT_EQ(kernels::binary<Equal>(nan, nan).item(), 0);
  EXPECT_EQ(kernels::binary<NotEqual>(nan, nan).item(), 1);
}

TEST(Elementwise, PowersOfZeroHaveFiniteGradients) {
  const Context cpu = context();
  const Tensor zero = testing::tensor_of(cpu, {0}, {1}), one = testing::tensor_of(cpu, {1}, {1});
  EXPECT_EQ(kernels::unary_backward(index_of<PowScalar, UnaryOps>, one, zero, 0).item(), 0);
  EXPECT_EQ(kernels::unary_backward(index_of<PowScalar, UnaryOps>, one, zero, 2).item(), 0);
  EXPECT_EQ(kernels::binary_backward(index_of<Pow, BinaryOps>, 0, one, zero, zero).item(), 0);
  EXPECT_EQ(kernels::binary_backward(index_of<Pow, BinaryOps>, 1, one, zero, one).item(), 0);
}

TEST(Elementwise, BitsDoNotDependOnTheThreadCountOrTheLayout) {
  const Context one = context(1), two = context(2);
  const Dims shape = {3, 67, 301};  // several parallel chunks
  for (const UnaryRow& row : testing::unary_rows()) {
    const Tensor x = testing::uniform_tensor(one, shape, 11, DType::f32, row.low, row.high);
    const Tensor same = testing::uniform_tensor(two, shape, 11, DType::f32, row.low, row.high);
    const std::vector<float> expected = kernels::unary(row.op, x, row.parameter).to_vector<float>();
    EXPECT_EQ(expected, kernels::unary(row.op, same, row.parameter).to_vector<float>()) << name_of_unary(row.op);
    const Tensor turned = kernels::clone(x.permute({2, 0, 1})).permute({1, 2, 0});
    EXPECT_EQ(expected, kernels::unary(row.op, turned, row.parameter).to_vector<float>()) << name_of_unary(row.op);
    // A part alone has the bits it has in the whole.
    const Tensor part = kernels::unary(row.op, x.flatten().slice(0, 13, 30), row.parameter);
    EXPECT_EQ(std::vector<float>(expected.begin() + 13, expected.begin() + 30), part.to_vector<float>());
  }
}

TEST(Elementwise, RefusesWhatDoesNotFitByName) {
  const Context cpu = context(), other = context();
  const Tensor a = empty(cpu, {2, 3}), b = empty(cpu, {2, 4}), half = empty(cpu, {2, 3}, DType::bf16);
  EXPECT_THROW(kernels::binary<Add>(a, b), Error);
  EXPECT_THROW(kernels::binary<Add>(a, half), Error);
  EXPECT_THROW(kernels::binary<Add>(a, empty(other, {2, 3})), Error);
  EXPECT_THROW(kernels::binary<Add>(a, Tensor()), Error);
  EXPECT_THROW(kernels::unary<Exp>(Tensor()), Error);
  EXPECT_THROW(kernels::unary(UnaryOps::size, a), Error);
  EXPECT_THROW(kernels::binary(-1, a, a), Error);
  EXPECT_THROW(kernels::unary_backward(index_of<Exp, UnaryOps>, a, b), Error);
  EXPECT_THROW(kernels::binary_backward(index_of<Mul, BinaryOps>, 2, a, a, a), Error);
  try {
    kernels::binary<Mul>(a, b);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("(2, 3)"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace keel
