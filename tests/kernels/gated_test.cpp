#include "keel/kernels/gated.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "keel/kernels/elementwise.h"
#include "tests/kernels/row_support.h"

namespace keel {
namespace {

using namespace keel::testing;

constexpr GateKind kGateKinds[] = {GateKind::silu, GateKind::gelu, GateKind::gelu_tanh, GateKind::relu,
                                   GateKind::sigmoid};

// Value and derivative, from the formulas of the papers.
struct Activation {
  std::function<double(double)> value, slope;
};
Activation activation_of(GateKind kind) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const auto phi = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  const auto density = [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); };
  const auto inner = [](double x) { return std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); };
  switch (kind) {
    case GateKind::silu:
      return {[=](double x) { return x * sigmoid(x); },
              [=](double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }};
    case GateKind::gelu:
      return {[=](double x) { return x * phi(x); }, [=](double x) { return phi(x) + x * density(x); }};
    case GateKind::gelu_tanh:
      return {[=](double x) { return 0.5 * x * (1 + std::tanh(inner(x))); },
              [=](double x) {
                const double t = std::tanh(inner(x));
                return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
              }};
    case GateKind::relu: return {[](double x) { return std::max(x, 0.0); }, [](double x) { return x > 0 ? 1.0 : 0.0; }};
    default: return {sigmoid, [=](double x) { return sigmoid(x) * (1 - sigmoid(x)); }};
  }
}

// Columns that fill vectors, and that do not; rows of more than a piece.
constexpr std::int64_t kWidths[] = {1, 24, 37, 1100};

TEST(Gated, EqualsADoubleReferenceForEveryKindDtypeAndLayout) {
  const Context context = testing::context();
  for (const GateKind kind : kGateKinds)
    for (const DType dtype : kFloats)
      for (const std::int64_t cols : kWidths)
        for (const bool dense : {true, false}) {
          SCOPED_TRACE(concat(name_of(kind), ' ', dtype, ' ', cols, dense ? " dense" : " strided"));
          Tensor x = uniform_tensor(context, {3, 2, 2 * cols}, 1, dtype, -6, 6);
          if (!dense) x = uniform_tensor(context, {2 * cols, 2, 3}, 1, dtype, -6, 6).transpose(0, 2);
          const Tensor grad = uniform_tensor(context, {3, 2, cols}, 2, dtype);
          const std::vector<double> xs = doubles(x), gs = doubles(grad);
          const Activation f = activation_of(kind);
          std::vector<double> out(gs.size()), grads(xs.size());
          const auto n = static_cast<std::size_t>(cols);
          for (std::size_t i = 0; i < gs.size(); ++i) {
            const std::size_t gate = i / n * 2 * n + i % n, up = gate + n;
            out[i] = f.value(xs[gate]) * xs[up];
            grads[gate] = gs[i] * xs[up] * f.slope(xs[gate]);
            grads[up] = gs[i] * f.value(xs[gate]);
          }
          const Tensor result = kernels::gated(x, kind);
          EXPECT_EQ(result.shape(), (Dims{3, 2, cols}));
          EXPECT_LT(relative_error(doubles(result), out), tolerance(dtype));
          EXPECT_LT(relative_error(doubles(kernels::gated_backward(grad, x, kind)), grads), tolerance(dtype));
        }
}

TEST(Gated, HasTheBitsOfTheActivationThenTheProductInF32AndRoundsOnceIn16Bits) {
  const Context context = testing::context();
  const Tensor x = uniform_tensor(context, {5, 2 * 700}, 1, DType::bf16, -6, 6);
  const Tensor wide = kernels::cast(x, DType::f32);
  const Tensor gate = wide.slice(1, 0, 700), up = wide.slice(1, 700, 1400);
  const Tensor expected = kernels::binary<Mul>(kernels::unary<Silu>(gate), up);
  EXPECT_TRUE(same_bits(kernels::gated(wide, GateKind::silu), expected));
  EXPECT_TRUE(same_bits(kernels::gated(x, GateKind::silu), kernels::cast(expected, DType::bf16)));
}

TEST(Gated, LeavesFarGatesFinite) {
  const Context context = testing::context(1);
  for (const GateKind kind : kGateKinds) {
    SCOPED_TRACE(name_of(kind));
    const Tensor x = tensor_of(context, {-200, 200, -1e4, 1e4, 2, 2, 2, 2}, {1, 8});
    const Tensor one = kernels::full(context, {1, 4}, 1);
    for (const Tensor& result : {kernels::gated(x, kind), kernels::gated_backward(one, x, kind)})
      for (const double value : doubles(result)) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(Gated, TakesNoRowsAndNoColumnsAndRefusesAnOddWidth) {
  const Context context = testing::context(1);
  EXPECT_EQ(kernels::gated(empty(context, {0, 6}), GateKind::silu).shape(), (Dims{0, 3}));
  EXPECT_EQ(kernels::gated(empty(context, {4, 0}), GateKind::silu).shape(), (Dims{4, 0}));
  EXPECT_NE(error_of([&] {
              kernels::gated(empty(context, {4, 5}), GateKind::silu);
            }).find("must be even"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              kernels::gated_backward(empty(context, {4, 4}), empty(context, {4, 6}), GateKind::silu);
            }).find("grad_out must be"),
            std::string::npos);
}

}  // namespace
}  // namespace keel
