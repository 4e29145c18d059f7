// Adding up what the ranks of a collective sent, on a device: the processor's bits.

#include "keel/kernels/combine.h"

#include "tests/cuda/device.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(CombineOnDevice);

TEST_P(CombineOnDevice, EqualsTheProcessorToTheBit) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u8}) {
    const bool narrow = dtype == DType::bf16 || dtype == DType::f16;
    for (const std::size_t terms : {1, 2, 3, 64, 65, 130}) {
      for (const std::int64_t count : {0, 1, 100, 2'304}) {
        if (dtype == DType::u8 && terms > 3) continue;
        SCOPED_TRACE(concat(dtype, ", ", terms, " terms of ", count));
        std::vector<Tensor> there, here;
        for (std::size_t t = 0; t < terms; ++t) {
          there.push_back(uniform_tensor(device, {count}, t, dtype, is_floating(dtype) ? -1 : 0, 9));
          here.push_back(uniform_tensor(host, {count}, t, dtype, is_floating(dtype) ? -1 : 0, 9));
        }
        for (const DType result : narrow ? std::vector{dtype, DType::f32} : std::vector{dtype}) {
          const Tensor out = empty(device, {count}, result), reference = empty(host, {count}, result);
          for (const CombineOp op : {CombineOp::sum, CombineOp::maximum, CombineOp::minimum, CombineOp::product,
                                     CombineOp::mean, CombineOp::pairwise_sum}) {
            kernels::combine({there, out, op});
            kernels::combine({here, reference, op});
            EXPECT_EQ(doubles(out), doubles(reference)) << name_of(op);
          }
          kernels::combine({there, out, CombineOp::mean, 3});
          kernels::combine({here, reference, CombineOp::mean, 3});
          EXPECT_EQ(doubles(out), doubles(reference)) << "a third of the sum";
        }
      }
    }
  }
}

TEST_P(CombineOnDevice, TakesViewsThatBeginAnywhere) {
  const Tensor a = uniform_tensor(device, {1'000}, 1, DType::bf16), b = uniform_tensor(device, {1'000}, 2, DType::bf16);
  const std::vector<double> x = doubles(a), y = doubles(b);
  const std::vector<Tensor> terms = {a.slice(0, 1, 900), b.slice(0, 3, 902)};
  for (const CombineOp op : {CombineOp::sum, CombineOp::pairwise_sum}) {
    const Tensor out = zeros(device, {1'000}, DType::bf16);
    kernels::combine({terms, out.slice(0, 5, 904), op});
    const std::vector<double> sums = doubles(out);
    for (std::size_t i = 0; i < 899; ++i)
      ASSERT_EQ(sums[i + 5], static_cast<double>(static_cast<float>(bf16(static_cast<float>(x[i + 1] + y[i + 3])))));
    EXPECT_EQ(sums[4], 0);
    EXPECT_EQ(sums[904], 0);
  }
}

}  // namespace
}  // namespace keel
