#pragma once
// What an optimizer step decides about itself, kept on the device so that nothing waits for the host.

#include <cstdint>

#include "keel/runtime/tensor.h"

namespace keel {

// What a rank knows of the gradient: the sums over all ranks make the step. 24 bytes, sent in one collective.
struct StepPartial {
  double squares = 0;  // of the gradient elements that the rank owns
  std::int64_t bad =
      kNothingBad;    // the first element of the whole gradient that is not finite, as add_squares() counts
  double tokens = 0;  // that the rank's losses were means over

  static constexpr std::int64_t kNothingBad = INT64_MAX;
};
static_assert(sizeof(StepPartial) == 24);

// The numbers behind a state tensor. Gradients are sums over tokens, times the loss scale, until the step divides them.
struct StepState {
  static constexpr double kOwnMomentum = -1;  // the optimizer's

  // Gathered by add_squares() and add_tokens(), used and reset by decide_step().
  StepPartial partial = {};

  // Decided for the step at hand, read by the update.
  std::int64_t steps = 0;  // that were taken, this one included
  std::int64_t taken = 0;  // 1, or 0: the gradient is not finite, and nothing may change
  double lr = 0;
  double momentum = kOwnMomentum;  // instead of the optimizer's momentum or beta1, where a schedule cycles it
  double gradient_scale = 1;       // factor on every gradient: mean over tokens, loss scale, and clipping
  double grad_norm = 0;            // 2-norm of the mean gradient before clipping
  std::int64_t first_bad = StepPartial::kNothingBad;
  double tokens = 0;  // of all ranks

  // The factor on the loss of the next backward pass, and what decides when it changes.
  float loss_scale = 1;
  std::int32_t hysteresis_left = 0;
  std::int64_t good_in_a_row = 0;  // steps taken since the scale changed or one was skipped
  std::int64_t skips_in_a_row = 0;
};

// Dynamic loss scaling, for gradients in fp16. The default is PyTorch's GradScaler; hysteresis 2, interval 1000 and
// floor 1 are DeepSpeed's. Hysteresis: so many skipped steps since the last growth until the scale shrinks.
struct LossScaling {
  double growth = 1, backoff = 1;  // 1: the scale stays as it is
  std::int64_t interval = 2000;    // steps taken in a row before the scale grows
  std::int64_t hysteresis = 1;
  double floor = 0;
  bool operator==(const LossScaling&) const = default;

  static LossScaling dynamic() { return {.growth = 2, .backoff = 0.5}; }
};

// What changes from step to step: f64 (n). Element i is for the step after i taken ones, the last one for all later
// too.
struct StepCurves {
  Tensor rates;
  Tensor momenta = {};  // undefined: the optimizer's own
};

struct StepArgs {
  Tensor state;
  Tensor partials = {};  // u8 (ranks * 24): of all ranks, in their order; undefined: the state's own is all there is
  double clip = 0;       // longest mean gradient, by its 2-norm; 0: not clipped
  StepCurves curves = {};
  double lr = 0;  // without rates
  LossScaling scaling = {};
};

namespace kernels {

// u8 (sizeof(StepState)).
Tensor make_step_state(const Context& context, const StepState& initial = {});
// Waits for the device.
StepState read_step_state(const Tensor& state);

// Adds the squares of x, in fp64 and in a fixed order, and notes the first element that is not finite; x's elements
// are counted from `first`.
void add_squares(const Tensor& x, const Tensor& state, std::int64_t first = 0);
// The same of squares that another state has noted, whose elements were counted from 0.
void add_noted(const Tensor& noted, const Tensor& state, std::int64_t first = 0);
// Counts the tokens that a loss was a mean over.
void add_tokens(const Tensor& state, double tokens);
// The state's partial, u8 (24), its loss scale, f32 (1), and whether the step was taken, i64 (1): views.
Tensor partial_of(const Tensor& state);
Tensor loss_scale_of(const Tensor& state);
Tensor taken_of(const Tensor& state);
// Decides the step from the partials: whether it is taken, its learning rate, norm and scale. A step is taken where
// every gradient is finite and there is a token at all. The clip factor is min(1, clip / (norm + 1e-6)), as in PyTorch,
// rounded to fp32, so that every rank and stage arrives at the same one.
void decide_step(const StepArgs& args);
// Elements of a gradient x whose mean, x times the gradient_scale that was decided, is larger than `limit` or smaller
// than -limit become what has that mean, as clip_grad_value_() of PyTorch has it; others keep their bits. `limit` is
// above 0.
void clip_values(const Tensor& x, const Tensor& state, double limit);

}  // namespace kernels
}  // namespace keel
