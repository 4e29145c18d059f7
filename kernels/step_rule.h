#pragma once
// The rule behind decide_step(), for every device.

#include "keel/kernels/step_state.h"
#include "keel/runtime/hd.h"
#include "keel/runtime/math.h"

namespace keel {

struct StepRule {
  double tokens, clip, lr;
  const double* rates;  // null: `lr` holds
  std::int64_t rate_count;

  KEEL_HD void operator()(StepState& state) const {
    const double scale = 1 / tokens;
    state.grad_norm = math::sqrt(state.squares) * scale;
    state.taken = state.grad_norm - state.grad_norm == 0 ? 1 : 0;  // finite
    if (rates == nullptr) state.lr = lr;
    else state.lr = rates[state.steps < rate_count ? state.steps : rate_count - 1];
    state.gradient_scale = scale;
    if (clip > 0) {
      const float factor = static_cast<float>(clip) / (static_cast<float>(state.grad_norm) + 1e-6f);
      state.gradient_scale = scale * (factor < 1 ? factor : 1.0f);
    }
    state.steps += state.taken;
    state.first_bad = state.bad;
    state.squares = 0;
    state.bad = StepState::kNothingBad;
  }
};

}  // namespace keel
