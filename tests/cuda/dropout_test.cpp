// Dropout on a device: bit by bit the processor's.

#include "tests/cuda/device.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(DropoutOnDevice);

Tensor ids(const Context& context, const std::vector<std::int64_t>& values) {
  return from_values(context, values, {static_cast<std::int64_t>(values.size())});
}

TEST_P(DropoutOnDevice, GivesTheBitsOfTheProcessor) {
  const DropoutKey key{.seed = 5, .step = 9, .call = 3};
  const std::vector<std::int64_t> samples = {4, (std::int64_t{1} << 40) + 7};  // the second needs both counter words
  for (const DType dtype : kKernelTypes)
    for (const std::int64_t channels : {1, 6, 16, 301, 2056})
      for (const double probability : {0.0, 0.25, 0.9, 1.0}) {
        const Tensor x = uniform_tensor(host, {2, 3, channels}, 1, dtype, -1, 1);
        const std::vector<double> expected = doubles(kernels::dropout(x, probability, key, ids(host, samples)));
        EXPECT_EQ(doubles(kernels::dropout(on_device(x), probability, key, ids(device, samples))), expected)
            << dtype << channels << ' ' << probability;
        EXPECT_EQ(doubles(kernels::dropout(off_boundary(on_device(x)), probability, key, ids(device, samples))),
                  expected);
      }
}

TEST_P(DropoutOnDevice, DoesNotDependOnHowABatchIsSplit) {
  const DropoutKey key{.seed = 2, .step = 7};
  const Tensor x = uniform_tensor(device, {6, 5, 40}, 2);
  const std::vector<double> whole = doubles(kernels::dropout(x, 0.3, key, ids(device, {10, 11, 12, 13, 14, 15})));
  const std::vector<double> part = doubles(kernels::dropout(x.slice(0, 2, 4), 0.3, key, ids(device, {12, 13})));
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 2 * 5 * 40));
}

TEST_P(DropoutOnDevice, OfNothingIsNothing) {
  EXPECT_EQ(kernels::dropout(empty(device, {0, 3, 4}), 0.1, {}, ids(device, {})).numel(), 0);
  EXPECT_EQ(kernels::dropout(empty(device, {2, 3, 0}), 0.1, {}, ids(device, {0, 1})).numel(), 0);
  EXPECT_THROW(kernels::dropout(empty(device, {1, 1, 4}, DType::f64), 0.1, {}, ids(device, {0})), Error);
}

}  // namespace
}  // namespace keel
