#pragma once
// The rule behind decide_step(), for every device.

#include "keel/kernels/step_state.h"
#include "keel/runtime/hd.h"
#include "keel/runtime/math.h"

namespace keel {

struct StepRule {
  // The numbers of a curve, if there is one.
  struct Curve {
    const double* numbers;
    std::int64_t count;

    explicit Curve(const Tensor& curve)
        : numbers(curve.defined() ? curve.data<double>() : nullptr), count(curve.defined() ? curve.numel() : 0) {}
    KEEL_HD double at(std::int64_t steps, double without) const {
      return numbers == nullptr ? without : numbers[steps < count ? steps : count - 1];
    }
  };

  double clip, lr;
  Curve rates, momenta;
  const StepPartial* partials;  // null: the state's own
  std::int64_t ranks;
  LossScaling scaling;

  explicit StepRule(const StepArgs& args)
      : clip(args.clip),
        lr(args.lr),
        rates(args.curves.rates),
        momenta(args.curves.momenta),
        partials(args.partials.defined() ? reinterpret_cast<const StepPartial*>(args.partials.raw()) : nullptr),
        ranks(args.partials.defined() ? args.partials.numel() / static_cast<std::int64_t>(sizeof(StepPartial)) : 1),
        scaling(args.scaling) {}

  KEEL_HD void operator()(StepState& state) const {
    const StepPartial all = sum_of_ranks(state);
    const double scale = all.tokens > 0 ? 1 / (all.tokens * static_cast<double>(state.loss_scale)) : 0;
    state.tokens = all.tokens;
    state.grad_norm = math::sqrt(all.squares) * scale;
    state.taken = all.tokens > 0 && state.grad_norm - state.grad_norm == 0 ? 1 : 0;  // finite
    state.lr = rates.at(state.steps, lr);
    state.momentum = momenta.at(state.steps, StepState::kOwnMomentum);
    state.gradient_scale = scale;
    if (clip > 0) {
      const float factor = static_cast<float>(clip) / (static_cast<float>(state.grad_norm) + 1e-6f);
      state.gradient_scale = scale * (factor < 1 ? factor : 1.0f);
    }
    state.steps += state.taken;
    state.first_bad = all.bad;
    state.partial = {};
    if (!(all.tokens > 0)) return;
    state.skips_in_a_row = state.taken != 0 ? 0 : state.skips_in_a_row + 1;
    scale_loss(state);
  }

 private:
  // Adds in the order of ranks, so that all arrive at the same bits.
  KEEL_HD StepPartial sum_of_ranks(const StepState& state) const {
    if (partials == nullptr) return state.partial;
    StepPartial sum = partials[0];
    for (std::int64_t r = 1; r < ranks; ++r) {
      sum.squares += partials[r].squares;
      sum.tokens += partials[r].tokens;
      if (partials[r].bad < sum.bad) sum.bad = partials[r].bad;
    }
    return sum;
  }

  // For the next backward pass: this one's gradients were divided by the scale that they were multiplied with.
  KEEL_HD void scale_loss(StepState& state) const {
    if (state.taken == 0) {
      state.good_in_a_row = 0;
      if (state.hysteresis_left > 1) {
        --state.hysteresis_left;
        return;
      }
      const double smaller = static_cast<double>(state.loss_scale) * scaling.backoff;
      state.loss_scale = static_cast<float>(smaller < scaling.floor ? scaling.floor : smaller);
      return;
    }
    if (++state.good_in_a_row < scaling.interval) return;
    state.good_in_a_row = 0;
    state.hysteresis_left = static_cast<std::int32_t>(scaling.hysteresis);
    const float larger = static_cast<float>(static_cast<double>(state.loss_scale) * scaling.growth);
    if (larger - larger == 0) state.loss_scale = larger;
  }
};

// Of clip_values(): the largest element, in the type that sums have.
template <class A>
KEEL_HD A largest_element(const StepState& state, double limit) {
  return static_cast<A>(limit / state.gradient_scale);
}

template <class A>
KEEL_HD bool is_clipped(A element, A largest) {
  return element > largest || element < -largest;
}

}  // namespace keel
