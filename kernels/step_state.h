#pragma once
// What an optimizer step decides about itself, kept on the device so that nothing waits for the host.

#include <cstdint>

#include "keel/runtime/tensor.h"

namespace keel {

// The numbers behind a state tensor. Gradients are sums over tokens until the step divides them.
struct StepState {
  // Gathered by add_squares(), used and reset by decide_step().
  double squares = 0;              // of all gradient elements
  std::int64_t bad = kNothingBad;  // the first element that is not finite, as add_squares() counts them

  // Decided for the step at hand, read by the update.
  std::int64_t steps = 0;  // that were taken, this one included
  std::int64_t taken = 0;  // 1, or 0: the gradient is not finite, and nothing may change
  double lr = 0;
  double gradient_scale = 1;             // factor on every gradient: mean over tokens, and clipping
  double grad_norm = 0;                  // 2-norm of the mean gradient before clipping
  std::int64_t first_bad = kNothingBad;  // `bad` of this step

  static constexpr std::int64_t kNothingBad = INT64_MAX;
};

struct StepArgs {
  Tensor state;
  double tokens = 1;  // that the gradients are sums over
  double clip = 0;    // longest mean gradient, by its 2-norm; 0: not clipped
  Tensor rates = {};  // f64 (n): the learning rate after i taken steps; the last one holds for all later
  double lr = 0;      // without rates
};

namespace kernels {

// u8 (sizeof(StepState)).
Tensor make_step_state(const Context& context, const StepState& initial = {});
// Waits for the device.
StepState read_step_state(const Tensor& state);

// Adds the squares of x, in fp64 and in a fixed order, and notes the first element that is not finite; x's elements
// are counted from `first`.
void add_squares(const Tensor& x, const Tensor& state, std::int64_t first = 0);
// Decides the step from what was added: whether it is taken, its learning rate, norm and scale. The clip factor is
// rounded to fp32, as every rank and stage must arrive at the same one; min(1, clip / (norm + 1e-6)) as PyTorch has it.
void decide_step(const StepArgs& args);

}  // namespace kernels
}  // namespace keel
