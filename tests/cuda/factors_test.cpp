// Mean squares by rows and columns on a device, against the processor.

#include "keel/kernels/factors.h"

#include "keel/kernels/step_state.h"
#include "tests/cuda/device.h"
#include "tests/kernels/row_support.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(FactorsOnDevice);

const Dims kFactoredShapes[] = {{7, 5}, {1, 300}, {300, 1}, {2, 3, 4}, {2, 140, 33}};

TEST_P(FactorsOnDevice, AreThoseOfTheProcessorInAnOrderOfTheirOwn) {
  struct Numbers {
    std::vector<double> sums, rows, columns, roots;
  };
  for (const Dims& dims : kFactoredShapes)
    for (const DType dtype : kKernelTypes)
      for (const bool taken : {true, false}) {
        const Factored shape = Factored::of(dims);
        const auto run = [&](const Context& context) {
          const Tensor gradient = uniform_tensor(context, {product(dims)}, 3, dtype).slice(0, 2, product(dims));
          const Tensor step = kernels::make_step_state(
              context, {.steps = 3, .taken = taken ? 1 : 0, .lr = 0.1, .gradient_scale = 0.25});
          const SettleArgs args{.shape = shape,
                                .rows = uniform_tensor(context, {shape.batch * shape.rows}, 1, DType::f32, 0, 1),
                                .columns = uniform_tensor(context, {shape.batch * shape.columns}, 2, DType::f32, 0, 1),
                                .sums = kernels::full(context, {shape.count()}, 0.5, DType::f64),
                                .step = step,
                                .settings = {}};
          kernels::sum_factors(gradient, 2, shape, step, args.sums);
          Numbers numbers{doubles(args.sums), {}, {}, {}};
          kernels::settle_factors(args);
          const Tensor root = empty(context, {product(dims) - 2});
          kernels::expand_factors(args.sums, shape, 1, root);
          numbers.rows = doubles(args.rows);
          numbers.columns = doubles(args.columns);
          numbers.roots = doubles(root);
          return numbers;
        };
        const Numbers there = run(device), here = run(host);
        SCOPED_TRACE(concat(dims, ' ', dtype, taken ? "" : ", not taken"));
        EXPECT_LT(relative_error(there.sums, here.sums), 1e-13);
        EXPECT_LT(relative_error(there.rows, here.rows), 1e-6);
        EXPECT_LT(relative_error(there.columns, here.columns), 1e-6);
        EXPECT_LT(relative_error(there.roots, here.roots), 1e-6);
      }
}

}  // namespace
}  // namespace keel
