// Layer norm and RMS norm on a device.

#include "keel/kernels/norm.h"

#include "tests/cuda/device.h"

namespace keel {
namespace {

using namespace keel::testing;
using kernels::norm;
using kernels::norm_backward;
using kernels::NormResult;

KEEL_DEVICE_SUITE(NormOnDevice);

constexpr double kEpsilon = 1e-5;
constexpr NormKind kKinds[] = {NormKind::layer, NormKind::rms};

// Rows of whole packs for one warp, with several in a block, and for several warps; and rows of other lengths.
const Dims kNormShapes[] = {{1, 8}, {13, 96}, {2, 5, 264}, {5, 1040}, {1, 2}, {9, 7}, {3, 1031}};
// Too long for the registers of a block.
constexpr std::int64_t kLongRow = 16392;

struct NormInputs {
  Tensor x, residual, weight, bias, grad;
};

NormInputs norm_inputs(const Context& context, const Dims& shape, DType dtype) {
  return {uniform_tensor(context, shape, 1, dtype, -1, 3), uniform_tensor(context, shape, 2, dtype, -2, 1),
          uniform_tensor(context, {shape.back()}, 3, dtype, 0.5, 1.5),
          uniform_tensor(context, {shape.back()}, 4, dtype), uniform_tensor(context, shape, 5, dtype)};
}

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

TEST_P(NormOnDevice, EqualsTheProcessorInFp64ForEveryKindDtypeAndSize) {
  for (const DType dtype : kKernelTypes)
    for (const Dims& shape : kNormShapes)
      for (const NormKind kind : kKinds) {
        const NormInputs in = norm_inputs(device, shape, dtype);
        const Tensor bias = kind == NormKind::layer ? in.bias : Tensor();
        const NormResult result = norm(kind, in.x, {}, in.weight, bias, kEpsilon);
        const NormResult expected = norm(kind, wide(in.x), {}, wide(in.weight), wide(bias), kEpsilon);
        // Two columns may be almost equal: their difference has few digits.
        expect_close(result.out, expected.out, shape.back() == 2 ? 100 : 2, 0.5);
        expect_close(result.rstd, expected.rstd, shape.back() == 2 ? 100 : 1);
        EXPECT_EQ(result.sum.raw(), in.x.raw());
        ASSERT_EQ(result.mean.defined(), kind == NormKind::layer);
        if (result.mean.defined()) expect_close(result.mean, expected.mean, 1, 1);
      }
}

TEST_P(NormOnDevice, WithResidualEqualsAnAdditionThenANormBitByBit) {
  for (const DType dtype : kKernelTypes)
    for (const NormKind kind : kKinds)
      for (const std::int64_t cols : {64, 67}) {
        const NormInputs in = norm_inputs(device, {9, cols}, dtype);
        const Tensor bias = kind == NormKind::layer ? in.bias : Tensor();
        const Tensor sum = kernels::binary<Add>(in.x, in.residual);
        const NormResult fused = norm(kind, in.x, in.residual, in.weight, bias, kEpsilon);
        const NormResult apart = norm(kind, sum, {}, in.weight, bias, kEpsilon);
        EXPECT_EQ(doubles(fused.sum), doubles(sum)) << dtype;
        EXPECT_EQ(doubles(fused.out), doubles(apart.out)) << dtype;
        EXPECT_EQ(doubles(fused.rstd), doubles(apart.rstd)) << dtype;
      }
}

TEST_P(NormOnDevice, LongRowsAndRowsThatBeginAnywhereEqualTheProcessor) {
  for (const std::int64_t cols : {std::int64_t{40}, std::int64_t{41}, kLongRow}) {
    const NormInputs in = norm_inputs(device, {2, cols}, DType::bf16);
    const NormResult expected = norm(NormKind::layer, wide(kernels::binary<Add>(in.x, in.residual)), {},
                                     wide(in.weight), wide(in.bias), kEpsilon);
    expect_close(norm(NormKind::layer, in.x, in.residual, in.weight, in.bias, kEpsilon).out, expected.out, 2, 0.5);
    if (cols == kLongRow) continue;
    for (const bool all : {false, true}) {
      const auto moved = [&](const Tensor& x) { return all ? off_boundary(x) : x; };
      expect_close(
          norm(NormKind::layer, off_boundary(in.x), moved(in.residual), moved(in.weight), in.bias, kEpsilon).out,
          expected.out, 2, 0.5);
      expect_close(norm(NormKind::layer, in.x, in.residual, off_boundary(in.weight), moved(in.bias), kEpsilon).out,
                   expected.out, 2, 0.5);
    }
  }
}

TEST_P(NormOnDevice, OfALargeOffsetKeepsItsVariance) {
  std::vector<double> values = uniform(3 * 256, 6);
  for (double& value : values) value += 3000;  // sum of squares minus square of sums would lose all digits
  const Tensor x = tensor_of(device, values, {3, 256}), ones = tensor_of(device, std::vector<double>(256, 1), {256});
  expect_close(norm(NormKind::layer, x, {}, ones, {}, kEpsilon).out,
               norm(NormKind::layer, wide(x), {}, wide(ones), {}, kEpsilon).out, 500, 1);
}

TEST_P(NormOnDevice, BackwardEqualsTheProcessorInFp64ForEveryKindDtypeAndSize) {
  for (const DType dtype : kKernelTypes)
    for (const Dims& shape : kNormShapes)
      for (const NormKind kind : kKinds) {
        SCOPED_TRACE(::testing::Message() << dtype << shape << (kind == NormKind::layer ? "layer" : "rms"));
        const NormInputs in = norm_inputs(device, shape, dtype);
        const bool layer = kind == NormKind::layer;
        const NormResult forward = norm(kind, in.x, {}, in.weight, layer ? in.bias : Tensor(), kEpsilon);
        NormBackwardArgs args = backward_args(kind, in, forward);
        args.grad_weight = empty(device, {shape.back()}, dtype);
        if (layer) args.grad_bias = empty(device, {shape.back()}, DType::f32);
        const Tensor grad_x = norm_backward(args);

        const NormInputs exact = {wide(in.x), {}, wide(in.weight), wide(in.bias), wide(in.grad)};
        NormBackwardArgs expected =
            backward_args(kind, exact, {Tensor(), exact.x, layer ? wide(forward.mean) : Tensor(), wide(forward.rstd)});
        expected.grad_weight = empty(host, {shape.back()}, DType::f64);
        if (layer) expected.grad_bias = empty(host, {shape.back()}, DType::f64);
        // Two columns leave almost nothing of a layer norm's gradient: its error is that of what cancels.
        expect_close(grad_x, norm_backward(expected), shape.back() == 2 ? 50 : 2, 0.5);
        expect_close(args.grad_weight, expected.grad_weight, 1, 1);
        if (layer) expect_close(args.grad_bias, expected.grad_bias, 1, 1);
      }
}

TEST_P(NormOnDevice, BackwardOfLongRowsEqualsTheProcessor) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::int64_t cols = dtype == DType::f32 ? 4104 : 8208;  // one pack too many for a block's registers
    const NormInputs in = norm_inputs(device, {2, cols}, dtype);
    const NormResult forward = norm(NormKind::layer, in.x, {}, in.weight, in.bias, kEpsilon);
    NormBackwardArgs args = backward_args(NormKind::layer, in, forward);
    args.grad_sum = in.residual;
    args.grad_weight = empty(device, {cols});
    const NormInputs exact = {wide(in.x), {}, wide(in.weight), {}, wide(in.grad)};
    NormBackwardArgs expected =
        backward_args(NormKind::layer, exact, {Tensor(), exact.x, wide(forward.mean), wide(forward.rstd)});
    expected.grad_sum = wide(in.residual);
    expected.grad_weight = empty(host, {cols}, DType::f64);
    expect_close(norm_backward(args), norm_backward(expected), 1, 1);
    expect_close(args.grad_weight, expected.grad_weight, 1, 1);
  }
}

TEST_P(NormOnDevice, BackwardAddsTheGradientOfTheResidualPathAlsoInPlace) {
  for (const DType dtype : kKernelTypes)
    for (const std::int64_t cols : {48, 49}) {
      const NormInputs in = norm_inputs(device, {19, cols}, dtype);
      const NormResult forward = norm(NormKind::layer, in.x, {}, in.weight, in.bias, kEpsilon);
      NormBackwardArgs args = backward_args(NormKind::layer, in, forward);
      const std::vector<double> alone = doubles(norm_backward(args)), added = doubles(in.residual);
      args.grad_sum = in.residual;
      std::vector<double> expected;
      for (std::size_t i = 0; i < alone.size(); ++i) expected.push_back(alone[i] + added[i]);
      const Tensor fresh = norm_backward(args);
      expect_close(fresh, expected, 1.5, 1.5);
      args.grad_x = args.grad_sum;
      EXPECT_EQ(doubles(norm_backward(args)), doubles(fresh));
    }
}

TEST_P(NormOnDevice, ParameterGradientsAreWrittenOrAdded) {
  for (const DType dtype : kKernelTypes)
    for (const DType destination : {DType::f32, dtype})
      for (const std::int64_t cols : {24, 25}) {
        const NormInputs in = norm_inputs(device, {300, cols}, dtype);
        const NormResult forward = norm(NormKind::layer, in.x, {}, in.weight, in.bias, kEpsilon);
        NormBackwardArgs args = backward_args(NormKind::layer, in, forward);
        args.grad_weight = uniform_tensor(device, {cols}, 6, destination, 4, 5);
        args.grad_bias = uniform_tensor(device, {cols}, 7, destination, 4, 5);
        const std::vector<double> held = doubles(args.grad_weight);
        const NormInputs exact = {wide(in.x), {}, wide(in.weight), {}, wide(in.grad)};
        NormBackwardArgs expected =
            backward_args(NormKind::layer, exact, {Tensor(), exact.x, wide(forward.mean), wide(forward.rstd)});
        expected.grad_weight = tensor_of(host, held, {cols}, DType::f64);
        expected.grad_bias = empty(host, {cols}, DType::f64);
        args.add_weight = expected.add_weight = true;  // the bias is overwritten
        norm_backward(args);
        norm_backward(expected);
        expect_close(args.grad_weight, expected.grad_weight, 1, 5);
        expect_close(args.grad_bias, expected.grad_bias, 1, 5);
      }
}

TEST_P(NormOnDevice, GivesTheSameBitsInAnyOrder) {
  for (const std::int64_t cols : {64, 65}) {
    const NormInputs in = norm_inputs(device, {201, cols}, DType::f32);
    expect_same_bits_again([&] {
      const NormResult forward = norm(NormKind::layer, in.x, in.residual, in.weight, in.bias, kEpsilon);
      NormBackwardArgs args = backward_args(NormKind::layer, in, forward);
      args.grad_weight = empty(device, {cols});
      args.grad_bias = empty(device, {cols});
      args.grad_x = norm_backward(args);
      return std::vector{forward.out, forward.mean, forward.rstd, args.grad_x, args.grad_weight, args.grad_bias};
    });
  }
}

TEST_P(NormOnDevice, OfNoRowsGivesParameterGradientsOfZero) {
  const NormInputs none = norm_inputs(device, {0, 8}, DType::f32);
  const NormResult forward = norm(NormKind::layer, none.x, {}, none.weight, none.bias, kEpsilon);
  NormBackwardArgs args = backward_args(NormKind::layer, none, forward);
  args.grad_weight = uniform_tensor(device, {8}, 1);
  args.grad_bias = uniform_tensor(device, {8}, 2);
  args.add_bias = true;
  const std::vector<double> held = doubles(args.grad_bias);
  EXPECT_EQ(norm_backward(args).numel(), 0);
  EXPECT_EQ(doubles(args.grad_weight), std::vector<double>(8, 0));
  EXPECT_EQ(doubles(args.grad_bias), held);
}

TEST_P(NormOnDevice, NanStaysInItsRow) {
  for (const std::int64_t cols : {16, 17}) {
    std::vector<double> values = uniform(3 * cols, 8);
    values[static_cast<std::size_t>(cols) + 2] = std::nan("");
    const Tensor x = tensor_of(device, values, {3, cols}), weight = uniform_tensor(device, {cols}, 9);
    const std::vector<double> out = doubles(norm(NormKind::layer, x, {}, weight, {}, kEpsilon).out);
    for (std::size_t i = 0; i < out.size(); ++i)
      EXPECT_EQ(std::isnan(out[i]), i / static_cast<std::size_t>(cols) == 1) << i;
  }
}

}  // namespace
}  // namespace keel
