// Updates of states in 8 bits on a device, against the processor.

#include "keel/kernels/dynamic_map.h"
#include "keel/kernels/update.h"
#include "tests/cuda/device.h"
#include "tests/kernels/row_support.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(UpdateBlocksOnDevice);

struct Types {
  DType parameter, gradient;
  bool masters = true;
};
constexpr Types kTypes[] = {{DType::f32, DType::f32},         {DType::bf16, DType::bf16}, {DType::bf16, DType::f32},
                            {DType::bf16, DType::f32, false}, {DType::f16, DType::f16},   {DType::f16, DType::f32}};

// Three steps and a skipped one of elements [from, from + count) of longer tensors, so that accesses are aligned or not
// as `from` says.
UpdateArgs run(const Context& context, std::int64_t from, std::int64_t count, const Types& c) {
  const auto part = [&](std::uint64_t seed, DType dtype) {
    return uniform_tensor(context, {from + count}, seed, dtype).slice(0, from, from + count);
  };
  UpdateArgs args{};
  args.parameter = part(1, c.parameter);
  if (c.parameter != DType::f32 && c.masters) args.master = part(1, DType::f32);
  args.stochastic_rounding = !c.masters;
  args.first = 5;
  args.range.weight_decay = 0.1;
  args.settings = AdamSettings{.beta2 = 0.9, .decoupled = true};
  for (const std::size_t kind : {0, 1}) {
    args.state[kind] = zeros(context, {from + count}, DType::u8).slice(0, from, from + count);
    args.scales[kind] = zeros(context, {state_blocks(count)});
  }
  for (std::int64_t step = 1; step <= 4; ++step) {
    args.gradient = part(10 + static_cast<std::uint64_t>(step), c.gradient);
    args.step = kernels::make_step_state(
        context, {.steps = step, .taken = step != 3 ? 1 : 0, .lr = 0.1, .gradient_scale = 0.25});
    kernels::update(args);
  }
  return args;
}

TEST_P(UpdateBlocksOnDevice, GiveTheBitsOfTheProcessor) {
  for (const Types& c : kTypes)
    for (const std::int64_t from : {0, 1, 4})
      for (const std::int64_t count : {1, 255, 256, 700, 5000}) {
        const UpdateArgs there = run(device, from, count, c), here = run(host, from, count, c);
        SCOPED_TRACE(concat(c.parameter, ' ', c.gradient, ' ', c.masters, ' ', from, ' ', count));
        EXPECT_EQ(doubles(there.parameter), doubles(here.parameter));
        EXPECT_EQ(numbers(there.master), numbers(here.master));
        for (const std::size_t kind : {0, 1}) {
          EXPECT_EQ(doubles(there.state[kind]), doubles(here.state[kind]));
          EXPECT_EQ(doubles(there.scales[kind]), doubles(here.scales[kind]));
        }
      }
}

TEST_P(UpdateBlocksOnDevice, LeaveAnEmptyRangeAlone) {
  const UpdateArgs args = run(device, 0, 0, kTypes[1]);
  EXPECT_EQ(args.parameter.numel(), 0);
}

}  // namespace
}  // namespace keel
