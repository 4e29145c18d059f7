#include "keel/kernels/gated.h"

#include "tests/cuda/device.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(GatedOnDevice);

TEST_P(GatedOnDevice, EqualsTheProcessorForEveryKindAndWidth) {
  for (const GateKind kind : {GateKind::silu, GateKind::gelu, GateKind::gelu_tanh, GateKind::relu, GateKind::sigmoid})
    for (const DType dtype : kKernelTypes)
      for (const std::int64_t cols : {16, 5}) {
        SCOPED_TRACE(concat(name_of(kind), ' ', dtype, ' ', cols));
        const Tensor x = uniform_tensor(host, {7, 2 * cols}, 1, dtype, -5, 5);
        const Tensor grad = uniform_tensor(host, {7, cols}, 2, dtype);
        const Tensor moved = on_device(x);
        const std::pair<Tensor, Tensor> results[] = {
            {kernels::gated(moved, kind), kernels::gated(x, kind)},
            {kernels::gated_backward(on_device(grad), moved, kind), kernels::gated_backward(grad, x, kind)}};
        for (const auto& [there, here] : results) {
          if (dtype == DType::f32) EXPECT_EQ(doubles(there), doubles(here));
          else expect_same_or_neighbours(there, here);
        }
      }
}

TEST_P(GatedOnDevice, TakesRowsThatBeginAnywhere) {
  const Tensor x = uniform_tensor(host, {3, 32}, 1, DType::f16, -5, 5);
  const Tensor there = kernels::gated(off_boundary(on_device(x)), GateKind::silu);
  EXPECT_EQ(doubles(there), doubles(kernels::gated(x, GateKind::silu)));
}

}  // namespace
}  // namespace keel
