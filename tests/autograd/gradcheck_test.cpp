// Compositions have the gradients of central differences, and what compares the two finds a wrong one.

#include "keel/autograd/gradcheck.h"

#include <gtest/gtest.h>

#include "keel/autograd/functions.h"
#include "tests/support.h"

namespace keel {
namespace {

using testing::uniform_tensor;

struct GradcheckRow {
  const char* name;
  std::vector<Dims> inputs;
  Variable (*function)(std::span<const Variable>);
};

// Compositions; each operation by itself is in operations_test.cpp.
const GradcheckRow kRows[] = {
    {"one input twice", {{5}}, [](std::span<const Variable> v) { return mul(v[0], v[0]); }},
    {"tanh of a difference", {{6}, {6}}, [](std::span<const Variable> v) { return tanh(sub(v[0], v[1])); }},
    {"add_norm, both outputs",
     {{3, 8}, {3, 8}, {8}, {8}},
     [](std::span<const Variable> v) {
       const ResidualNorm r = add_norm(NormKind::layer, v[0], v[1], v[2], v[3], 1e-5);
       return add(r.sum, square(r.out));
     }},
    {"views",
     {{2, 3, 4}},
     [](std::span<const Variable> v) {
       return view(permute(slice(v[0], 2, 1, 3), {2, 0, 1}), {-1});
     }},
    {"one sum twice, whose gradients are expanded",
     {{2, 4}},
     [](std::span<const Variable> v) {
       const Variable x = exp(v[0]);
       return add(sum(x), sum(x));
     }},
    {"sums that share one operand, before and behind",
     {{3}, {3}, {3}},
     [](std::span<const Variable> v) {
       const Variable a = exp(v[0]), b = exp(v[1]), c = exp(v[2]);
       return mul(add(square(add(a, b)), square(add(a, c))), add(square(add(b, a)), square(add(c, a))));
     }},
    {"concat and split",
     {{2, 4}, {2, 2}},
     [](std::span<const Variable> v) {
       const Variable both[] = {v[0], v[1]};
       const std::vector<Variable> thirds = split(concat(std::span<const Variable>(both), 1), 3, 1);
       return mul(thirds[0], thirds[2]);
     }},
};

TEST(Gradcheck, CompositionsAgreeWithCentralDifferences) {
  const Context context = testing::context(1);
  for (const GradcheckRow& row : kRows) {
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < row.inputs.size(); ++i)
      inputs.push_back(uniform_tensor(context, row.inputs[i], 10 + i, DType::f64));
    EXPECT_EQ(gradcheck(row.function, inputs), "") << row.name;
  }
}

TEST(Gradcheck, FindsAWrongDerivative) {
  const Tensor x = uniform_tensor(testing::context(), {3}, 1, DType::f64);
  const auto wrong = [](std::span<const Variable> v) {
    return record("wrong", kernels::unary<Square>(v[0].value()), {v[0]}, {},
                  [](const Saved&, std::span<const Tensor> grad, const Need&) -> Gradients { return {grad[0]}; });
  };
  EXPECT_NE(gradcheck(wrong, std::span(&x, 1)), "");
}

// The derivative of square(x), but off by `by` at one element of one input.
std::string gradcheck_off_by(double by, std::size_t input, std::int64_t element, const GradcheckOptions& options = {}) {
  const Context context = testing::context(1);
  const std::vector<Tensor> inputs = {testing::tensor_of(context, {1, 2, 3}, {3}, DType::f64),
                                      testing::tensor_of(context, {0, 0.5}, {2}, DType::f64)};
  const auto function = [=](std::span<const Variable> v) {
    const auto off = [&](std::size_t n) {
      const Tensor wrong = zeros(context, v[n].shape(), DType::f64);
      if (n == input) wrong.data<double>()[element] = by;
      return record("off", kernels::unary<Square>(v[n].value()), {v[n]}, {v[n].value(), wrong},
                    [](const Saved& saved, std::span<const Tensor> grad, const Need&) -> Gradients {
                      const Tensor slope = kernels::unary<MulScalar>(saved[0], 2);
                      return {kernels::binary<Mul>(kernels::binary<Add>(slope, saved[1]), grad[0])};
                    });
    };
    const Variable both[] = {off(0), off(1)};
    return concat(std::span<const Variable>(both), 0);
  };
  return gradcheck(function, inputs, options);
}

TEST(Gradcheck, FindsAWrongDerivativeOfAnyElement) {
  EXPECT_EQ(gradcheck_off_by(0, 0, 0), "");
  for (const auto& [input, element] : {std::pair{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}}) {
    const std::string said = gradcheck_off_by(0.01, static_cast<std::size_t>(input), element);
    EXPECT_EQ(said.find(concat("input ", input, ", element ", element, ": backward gives ")), 0U) << said;
  }
}

// Numbers that add up to one have no gradient where all weigh the same.
TEST(Gradcheck, WeighsOutputsDifferently) {
  const Tensor x = uniform_tensor(testing::context(), {3}, 1, DType::f64);
  const auto wrong = [](std::span<const Variable> v) {
    return record("wrong", softmax(v[0].detach()).value(), {v[0]}, {},
                  [](const Saved&, std::span<const Tensor> grad, const Need&) -> Gradients {
                    return {zeros(grad[0].context(), grad[0].shape(), grad[0].dtype())};
                  });
  };
  EXPECT_NE(gradcheck(wrong, std::span(&x, 1)), "");
}

TEST(Gradcheck, TakesAnErrorUpToItsTolerance) {
  const Tensor numbers = uniform_tensor(testing::context(1), {3}, 1, DType::f64);
  const auto nothing = [](std::span<const Variable> v) { return scale(v[0], 0); };
  EXPECT_EQ(gradcheck(nothing, std::span(&numbers, 1), {.tolerance = 0}), "");
  const GradcheckOptions loose{.tolerance = 0.1};  // outputs have weights of 0.5 to 1.5
  EXPECT_EQ(gradcheck_off_by(0.05, 1, 0, loose), "") << "where the derivative is 0";
  EXPECT_NE(gradcheck_off_by(0.25, 1, 0, loose), "");
  EXPECT_EQ(gradcheck_off_by(0.3, 0, 2, loose), "") << "where it is 6";
  EXPECT_NE(gradcheck_off_by(1.7, 0, 2, loose), "");
  const Tensor narrow = uniform_tensor(testing::context(1), {3}, 1);
  EXPECT_THROW(gradcheck([](std::span<const Variable> v) { return v[0]; }, std::span(&narrow, 1)), Error);
}

}  // namespace
}  // namespace keel
