#include "keel/kernels/rotary.h"

#include <iterator>

#include "tests/cuda/device.h"
#include "tests/error_of.h"

namespace keel {
namespace {

using namespace keel::testing;

KEEL_DEVICE_SUITE(RotaryOnDevice);

// Heads 1 to 3 of rows that hold more of them.
Tensor packed_part(const Tensor& rows) { return rows.transpose(1, 2).slice(1, 1, 4); }

struct RotaryCase {
  std::int64_t size, pairs;
  bool aligned = true;
};
// Whole packs; a rest that is not turned, of one run and of two; single elements; a head of more units than lanes.
constexpr RotaryCase kRotaryCases[] = {{32, 16}, {24, 8}, {32, 8}, {10, 3}, {7, 2}, {32, 16, false}, {148, 70}};

// Forward and, in place, back. Positions: 0 has those from the fifth on, 1 has some for all rows, 2 has some for each.
void expect_turned_as_by_the_processor(const Context& device, DType dtype, RotaryPairs layout, const RotaryCase& each,
                                       int positions) {
  SCOPED_TRACE(concat(dtype, " size ", each.size, " pairs ", each.pairs, " positions ", positions));
  const Context host = context();
  const Tensor rows = uniform_tensor(host, {2, 3, 4, each.size}, 1, dtype);
  const Tensor angles = uniform_tensor(host, {2, 9, each.pairs}, 2);
  RotaryArgs here;
  here.x = packed_part(rows);
  here.table = {kernels::clone(angles.select(0, 0)), kernels::clone(angles.select(0, 1)), layout};
  if (positions == 1) here.positions = tensor_of(host, {8, 0, 3}, {3}, DType::i32);
  if (positions == 2) here.positions = tensor_of(host, {8, 0, 3, 1, 1, 7}, {2, 3}, DType::i64);
  here.first = positions == 0 ? 5 : 0;
  RotaryArgs there = here;
  const Tensor moved = kernels::to(rows, device);
  there.x = packed_part(each.aligned ? moved : off_boundary(moved));
  there.table = {kernels::to(here.table.cosines, device), kernels::to(here.table.sines, device), layout};
  if (positions != 0) there.positions = kernels::to(here.positions, device);
  const std::vector<double> expected = doubles(kernels::rotary(here).out);
  EXPECT_EQ(doubles(kernels::rotary(there).out), expected);
  there.out = there.x;
  there.inverse = here.inverse = true;
  const std::vector<double> back = doubles(kernels::rotary(here).out);
  EXPECT_EQ(doubles(kernels::rotary(there).out), back);
}

void expect_normed_as_by_the_processor(const Context& device, DType dtype, RotaryPairs layout, const RotaryCase& each) {
  SCOPED_TRACE(concat(dtype, " size ", each.size, " pairs ", each.pairs));
  const Context host = context();
  const Tensor rows = uniform_tensor(host, {2, 3, 4, each.size}, 1, dtype);
  const Tensor grads = uniform_tensor(host, {2, 3, 4, each.size}, 3, dtype);
  const Tensor angles = uniform_tensor(host, {2, 9, each.pairs}, 2);
  RotaryBackwardArgs here;
  here.forward.x = packed_part(rows);
  here.forward.table = {kernels::clone(angles.select(0, 0)), kernels::clone(angles.select(0, 1)), layout};
  here.forward.weight = uniform_tensor(host, {each.size}, 4, dtype, 0.5, 1.5);
  here.forward.epsilon = 1e-3;
  here.grad_out = packed_part(grads);
  here.grad_weight = kernels::full(host, {each.size}, 0.25);
  here.add_weight = true;
  RotaryBackwardArgs there = here;
  const Tensor moved = kernels::to(rows, device);
  there.forward.x = packed_part(each.aligned ? moved : off_boundary(moved));
  there.forward.table = {kernels::to(here.forward.table.cosines, device), kernels::to(here.forward.table.sines, device),
                         layout};
  there.forward.weight = kernels::to(here.forward.weight, device);
  there.grad_out = packed_part(kernels::to(grads, device));
  there.grad_x = there.grad_out;
  there.grad_weight = kernels::to(here.grad_weight, device);
  here.forward = kernels::rotary(here.forward);
  there.forward = kernels::rotary(there.forward);
  expect_close(there.forward.out, here.forward.out, 2, 1);
  here = kernels::rotary_backward(here);
  there = kernels::rotary_backward(there);
  expect_close(there.grad_x, here.grad_x, 2, 1);
  expect_close(there.grad_weight, here.grad_weight, 10, 1);
}

constexpr RotaryPairs kRotaryLayouts[] = {RotaryPairs::halves, RotaryPairs::interleaved};

TEST_P(RotaryOnDevice, HasTheBitsOfTheProcessorForEveryLayoutAndPosition) {
  for (const DType dtype : kKernelTypes)
    for (const RotaryPairs layout : kRotaryLayouts)
      for (const RotaryCase& each : kRotaryCases)
        for (const int positions : {0, 1, 2}) expect_turned_as_by_the_processor(device, dtype, layout, each, positions);
}

TEST_P(RotaryOnDevice, WithANormAndItsGradientsEqualsTheProcessor) {
  for (const DType dtype : kKernelTypes)
    for (const RotaryPairs layout : kRotaryLayouts)
      for (const RotaryCase& each : kRotaryCases) expect_normed_as_by_the_processor(device, dtype, layout, each);
}

// A few of the same, for the sanitizer set: every size with every kind of positions, and once with a norm. Layouts and
// dtypes take turns, so that every layout meets every dtype, and each of both all kinds of positions.
TEST_P(RotaryOnDevice, HasTheBitsOfTheProcessorForSomeLayouts) {
  for (std::size_t i = 0; i < std::size(kRotaryCases); ++i)
    for (const int positions : {0, 1, 2}) {
      const std::size_t turn = i + static_cast<std::size_t>(positions);
      expect_turned_as_by_the_processor(device, kKernelTypes[turn % 3], kRotaryLayouts[turn % 2], kRotaryCases[i],
                                        positions);
    }
}

TEST_P(RotaryOnDevice, WithANormEqualsTheProcessorForSomeLayouts) {
  for (std::size_t i = 0; i < std::size(kRotaryCases); ++i)
    expect_normed_as_by_the_processor(device, kKernelTypes[i % 3], kRotaryLayouts[i % 2], kRotaryCases[i]);
}

TEST_P(RotaryOnDevice, SumsHaveTheSameBitsInAnyOrder) {
  expect_same_bits_again([&] {
    RotaryBackwardArgs args;
    args.forward.x = uniform_tensor(device, {2, 5, 7, 16}, 1);
    args.forward.table = {uniform_tensor(device, {7, 8}, 2), uniform_tensor(device, {7, 8}, 3)};
    args.forward.weight = uniform_tensor(device, {16}, 4);
    args.forward = kernels::rotary(args.forward);
    args.grad_out = uniform_tensor(device, {2, 5, 7, 16}, 5);
    args.grad_weight = empty(device, {16}, DType::f32);
    args = kernels::rotary_backward(args);
    return std::vector<Tensor>{args.forward.out, args.grad_x, args.grad_weight};
  });
}

TEST_P(RotaryOnDevice, APositionOutsideTheTableIsNamedAtTheNextWait) {
  RotaryArgs args;
  args.x = uniform_tensor(device, {1, 2, 3, 8}, 1);
  args.table = {uniform_tensor(device, {4, 4}, 2), uniform_tensor(device, {4, 4}, 3)};
  args.positions = tensor_of(device, {0, 4, 1}, {3}, DType::i64);
  const Tensor out = kernels::rotary(args).out;
  EXPECT_NE(error_of([&] { device.stream().synchronize(); }).find("rotary: position 4 at position 1 is outside [0, 4)"),
            std::string::npos);
}

}  // namespace
}  // namespace keel
