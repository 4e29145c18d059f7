#include "keel/kernels/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/row_support.h"

namespace keel {
namespace {

using namespace keel::testing;
using kernels::norm;
using kernels::norm_backward;
using kernels::NormResult;

constexpr double kEpsilon = 1e-5;

// norm(x) * weight + bias in double; an empty bias is none.
std::vector<double> normed(NormKind kind, const std::vector<double>& x, const std::vector<double>& weight,
                           const std::vector<double>& bias) {
  const std::size_t cols = weight.size();
  std::vector<double> out(x.size());
  for (std::size_t row = 0; row < x.size(); row += cols) {
    double mean = 0, variance = 0;
    for (std::size_t j = 0; j < cols; ++j) mean += kind == NormKind::layer ? x[row + j] / double(cols) : 0;
    for (std::size_t j = 0; j < cols; ++j) variance += (x[row + j] - mean) * (x[row + j] - mean) / double(cols);
    for (std::size_t j = 0; j < cols; ++j)
      out[row + j] = (x[row + j] - mean) / std::sqrt(variance + kEpsilon) * weight[j] + (bias.empty() ? 0 : bias[j]);
  }
  return out;
}

struct ReferenceGradients {
  std::vector<double> x, weight, bias;
};

ReferenceGradients norm_gradients(NormKind kind, const std::vector<double>& x, const std::vector<double>& weight,
                                  const std::vector<double>& grad) {
  const std::size_t cols = weight.size();
  const double count = double(cols);
  ReferenceGradients result{std::vector<double>(x.size()), std::vector<double>(cols), std::vector<double>(cols)};
  for (std::size_t row = 0; row < x.size(); row += cols) {
    double mean = 0, variance = 0, mean_g = 0, mean_gx = 0;
    for (std::size_t j = 0; j < cols; ++j) mean += kind == NormKind::layer ? x[row + j] / count : 0;
    for (std::size_t j = 0; j < cols; ++j) variance += (x[row + j] - mean) * (x[row + j] - mean) / count;
    const double rstd = 1 / std::sqrt(variance + kEpsilon);
    for (std::size_t j = 0; j < cols; ++j) {
      const double x_hat = (x[row + j] - mean) * rstd;
      mean_g += kind == NormKind::layer ? grad[row + j] * weight[j] / count : 0;
      mean_gx += grad[row + j] * weight[j] * x_hat / count;
      result.weight[j] += grad[row + j] * x_hat;
      result.bias[j] += grad[row + j];
    }
    for (std::size_t j = 0; j < cols; ++j)
      result.x[row + j] = rstd * (grad[row + j] * weight[j] - mean_g - (x[row + j] - mean) * rstd * mean_gx);
  }
  return result;
}

struct NormInputs {
  Tensor x, residual, weight, bias, grad;
  NormInputs(const Context& context, const Dims& shape, DType dtype)
      : x(uniform_tensor(context, shape, 1, dtype, -1, 3)),
        residual(uniform_tensor(context, shape, 2, dtype, -2, 1)),
        weight(uniform_tensor(context, {shape.back()}, 3, dtype, 0.5, 1.5)),
        bias(uniform_tensor(context, {shape.back()}, 4, dtype)),
        grad(uniform_tensor(context, shape, 5, dtype)) {}
};

NormBackwardArgs backward_args(NormKind kind, const NormInputs& in, const NormResult& forward) {
  NormBackwardArgs args{};
  args.kind = kind;
  args.grad_output = in.grad;
  args.x = forward.sum;
  args.weight = in.weight;
  args.mean = forward.mean;
  args.rstd = forward.rstd;
  return args;
}

const Dims kNormShapes[] = {{1, 2}, {3, 7}, {2, 5, 48}, {131, 33}, {3, 1601}};

TEST(Norm, EqualsADoubleReferenceForEveryKindDtypeAndSize) {
  const Context context = testing::context();
  for (const DType dtype : kFloats)
    for (const Dims& shape : kNormShapes) {
      const NormInputs in(context, shape, dtype);
      const NormResult layer = norm(NormKind::layer, in.x, {}, in.weight, in.bias, kEpsilon);
      EXPECT_LT(relative_error(doubles(layer.out),
                               normed(NormKind::layer, doubles(in.x), doubles(in.weight), doubles(in.bias))),
                tolerance(dtype))
          << dtype << shape;
      EXPECT_EQ(layer.sum.raw(), in.x.raw());
      const NormResult rms = norm(NormKind::rms, in.x, {}, in.weight, {}, kEpsilon);
      EXPECT_LT(relative_error(doubles(rms.out), normed(NormKind::rms, doubles(in.x), doubles(in.weight), {})),
                tolerance(dtype))
          << dtype << shape;
      EXPECT_FALSE(rms.mean.defined());
    }
}

TEST(Norm, WithResidualEqualsAnAdditionThenANormBitByBit) {
  const Context context = testing::context();
  for (const DType dtype : kFloats)
    for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
      const NormInputs in(context, {29, 67}, dtype);
      std::vector<double> sums = doubles(in.x);
      const std::vector<double> added = doubles(in.residual);
      for (std::size_t i = 0; i < sums.size(); ++i)
        sums[i] = dtype == DType::f64 ? sums[i] + added[i] : double(float(sums[i]) + float(added[i]));
      const Tensor sum = tensor_of(context, sums, {29, 67}, dtype);
      const Tensor bias = kind == NormKind::layer ? in.bias : Tensor();
      const NormResult fused = norm(kind, in.x, in.residual, in.weight, bias, kEpsilon);
      const NormResult apart = norm(kind, sum, {}, in.weight, bias, kEpsilon);
      EXPECT_TRUE(same_bits(fused.sum, sum) && same_bits(fused.out, apart.out) && same_bits(fused.rstd, apart.rstd))
          << dtype;
    }
}

TEST(Norm, OfALargeOffsetKeepsItsVariance) {
  const Context context = testing::context();
  std::vector<double> values = uniform(4 * 256, 6);
  for (double& value : values) value += 3000;  // sum of squares minus square of sums would lose all digits
  const Tensor x = tensor_of(context, values, {4, 256});
  const Tensor ones = tensor_of(context, std::vector<double>(256, 1), {256});
  const NormResult result = norm(NormKind::layer, x, {}, ones, {}, kEpsilon);
  EXPECT_LT(relative_error(doubles(result.out), normed(NormKind::layer, doubles(x), doubles(ones), {})), 1e-3);
}

TEST(Norm, BackwardEqualsADoubleReferenceForEveryKindDtypeAndSize) {
  const Context context = testing::context();
  for (const DType dtype : kFloats)
    for (const NormKind kind : {NormKind::layer, NormKind::rms})
      for (const Dims& shape : kNormShapes) {
        const NormInputs in(context, shape, dtype);
        const bool layer = kind == NormKind::layer;
        const NormResult forward = norm(kind, in.x, {}, in.weight, layer ? in.bias : Tensor(), kEpsilon);
        NormBackwardArgs args = backward_args(kind, in, forward);
        args.grad_weight = empty(context, {shape.back()}, dtype);
        if (layer) args.grad_bias = empty(context, {shape.back()}, DType::f32);
        const Tensor grad_x = norm_backward(args);
        const ReferenceGradients expected = norm_gradients(kind, doubles(in.x), doubles(in.weight), doubles(in.grad));
        // Two columns leave almost nothing of a layer norm's gradient: its error is that of what cancels.
        const double slack = shape.back() == 2 ? 100 : 4;
        EXPECT_LT(relative_error(doubles(grad_x), expected.x), slack * tolerance(dtype)) << dtype << shape;
        EXPECT_LT(relative_error(doubles(args.grad_weight), expected.weight), 4 * tolerance(dtype)) << dtype << shape;
        if (layer) { EXPECT_LT(relative_error(doubles(args.grad_bias), expected.bias), 1e-6) << dtype << shape; }
      }
}

TEST(Norm, BackwardEqualsCentralDifferences) {
  const Context context = testing::context();
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    const NormInputs in(context, {4, 6}, DType::f64);
    const Tensor bias = kind == NormKind::layer ? in.bias : Tensor();
    const auto forward = [&] { return norm(kind, in.x, in.residual, in.weight, bias, kEpsilon); };
    const auto value = [&] { return dot(doubles(forward().out), doubles(in.grad)); };
    NormBackwardArgs args = backward_args(kind, in, forward());
    args.grad_weight = empty(context, {6}, DType::f64);
    if (bias.defined()) args.grad_bias = empty(context, {6}, DType::f64);
    const std::vector<double> grad_x = doubles(norm_backward(args));
    EXPECT_LT(relative_error(grad_x, central_differences(in.x, value)), 1e-8);
    EXPECT_LT(relative_error(grad_x, central_differences(in.residual, value)), 1e-8);
    EXPECT_LT(relative_error(doubles(args.grad_weight), central_differences(in.weight, value)), 1e-8);
    if (bias.defined()) { EXPECT_LT(relative_error(doubles(args.grad_bias), central_differences(bias, value)), 1e-8); }
  }
}

TEST(Norm, BackwardAddsTheGradientOfTheResidualPath) {
  const Context context = testing::context();
  for (const DType dtype : kFloats) {
    const NormInputs in(context, {17, 40}, dtype);
    const NormResult forward = norm(NormKind::layer, in.x, {}, in.weight, in.bias, kEpsilon);
    NormBackwardArgs args = backward_args(NormKind::layer, in, forward);
    args.grad_sum = in.residual;
    std::vector<double> expected =
        norm_gradients(NormKind::layer, doubles(in.x), doubles(in.weight), doubles(in.grad)).x;
    const std::vector<double> added = doubles(in.residual);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += added[i];
    EXPECT_LT(relative_error(doubles(norm_backward(args)), expected), 2 * tolerance(dtype)) << dtype;
  }
}

TEST(Norm, ParameterGradientsAreWrittenOrAdded) {
  const Context context = testing::context();
  for (const DType dtype : kFloats)
    for (const DType destination : {DType::f32, dtype}) {
      const NormInputs in(context, {300, 24}, dtype);
      const NormResult forward = norm(NormKind::layer, in.x, {}, in.weight, in.bias, kEpsilon);
      NormBackwardArgs args = backward_args(NormKind::layer, in, forward);
      args.grad_weight = uniform_tensor(context, {24}, 6, destination, 4, 5);
      args.grad_bias = uniform_tensor(context, {24}, 7, destination, 4, 5);
      const std::vector<double> held = doubles(args.grad_weight);
      args.add_weight = true;  // the bias is overwritten
      norm_backward(args);
      ReferenceGradients expected =
          norm_gradients(NormKind::layer, doubles(in.x), doubles(in.weight), doubles(in.grad));
      for (std::size_t j = 0; j < held.size(); ++j) expected.weight[j] += held[j];
      const double allowed = std::max(tolerance(dtype), tolerance(destination));
      EXPECT_LT(relative_error(doubles(args.grad_weight), expected.weight), allowed) << dtype << destination;
      EXPECT_LT(relative_error(doubles(args.grad_bias), expected.bias), allowed) << dtype << destination;
    }
}

TEST(Norm, GivesTheSameBitsAtOneAndTwoThreads) {
  for (const DType dtype : kFloats) {
    const auto run = [&](int threads) {
      const Context context = testing::context(threads);
      const NormInputs in(context, {1009, 97}, dtype);
      const NormResult forward = norm(NormKind::layer, in.x, in.residual, in.weight, in.bias, kEpsilon);
      NormBackwardArgs args = backward_args(NormKind::layer, in, forward);
      args.grad_weight = empty(context, {97});
      args.grad_bias = empty(context, {97});
      args.grad_x = norm_backward(args);
      return args;
    };
    const NormBackwardArgs one = run(1), two = run(2);
    EXPECT_TRUE(same_bits(one.grad_x, two.grad_x)) << dtype;
    EXPECT_TRUE(same_bits(one.grad_weight, two.grad_weight)) << dtype;
    EXPECT_TRUE(same_bits(one.grad_bias, two.grad_bias)) << dtype;
  }
}

TEST(Norm, AcceptsStridedAndEmptyInputs) {
  const Context context = testing::context();
  const Tensor x = uniform_tensor(context, {6, 4}, 8).transpose(0, 1);
  const Tensor weight = uniform_tensor(context, {6}, 9);
  EXPECT_LT(relative_error(doubles(norm(NormKind::rms, x, {}, weight, {}, kEpsilon).out),
                           normed(NormKind::rms, doubles(x), doubles(weight), {})),
            1e-6);
  const NormInputs none(context, {0, 5}, DType::f32);
  const NormResult forward = norm(NormKind::layer, none.x, {}, none.weight, none.bias, kEpsilon);
  NormBackwardArgs args = backward_args(NormKind::layer, none, forward);
  args.grad_weight = uniform_tensor(context, {5}, 1);
  EXPECT_EQ(norm_backward(args).numel(), 0);
  EXPECT_EQ(doubles(args.grad_weight), std::vector<double>(5, 0));
}

TEST(Norm, RefusesWhatDoesNotFit) {
  const Context context = testing::context();
  const NormInputs in(context, {2, 3}, DType::f32);
  EXPECT_EQ(error_of([&] { norm(NormKind::rms, in.x, {}, in.weight, in.bias, kEpsilon); }),
            "rms_norm: an RMS norm has no bias, got f32 (3) on cpu");
  EXPECT_EQ(error_of([&] { norm(NormKind::layer, in.x, {}, zeros(context, {2}), {}, kEpsilon); }),
            "layer_norm: weight must be f32 (3), got f32 (2) on cpu");
  EXPECT_EQ(error_of([&] {
              norm(NormKind::layer, in.x, zeros(context, {2, 3}, DType::f64), in.weight, {}, kEpsilon);
            }),
            "layer_norm: residual must be f32 (2, 3), got f64 (2, 3) on cpu");
  NormBackwardArgs args = backward_args(NormKind::layer, in, norm(NormKind::layer, in.x, {}, in.weight, {}, kEpsilon));
  args.grad_weight = zeros(context, {3}, DType::bf16);
  EXPECT_EQ(error_of([&] { norm_backward(args); }),
            "layer_norm_backward: grad_weight must have the dtype of x or f32, got bf16 (3) on cpu");
}

}  // namespace
}  // namespace keel
