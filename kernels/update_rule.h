#pragma once
// The arithmetic of AdamW and SGD, for every device: the same bits everywhere.
//
// A rule holds the numbers of one step, rounded to the type A of the weights; calling it updates one element.

#include "keel/kernels/update.h"
#include "keel/runtime/hd.h"
#include "keel/runtime/math.h"

namespace keel {

// base^n, n >= 0, by squaring: with products alone, so that every device finds the same.
KEEL_HD inline double whole_power(double base, std::int64_t n) {
  double power = 1;
  for (; n > 0; n /= 2, base *= base)
    if (n % 2 == 1) power *= base;
  return power;
}

// What does not change from step to step.
struct AdamWSettings {
  double lr_factor, beta1, beta2, epsilon, weight_decay;
};
inline AdamWSettings settings_of(const AdamWArgs& args) {
  return {args.lr_factor, args.beta1, args.beta2, args.epsilon, args.weight_decay};
}

template <class A>
struct AdamWRule {
  A scale, keep1, take1, keep2, take2, decay, rate, inverse_root, epsilon;

  static KEEL_HD AdamWRule of(const AdamWSettings& settings, const StepState& state) {
    const double lr = state.lr * settings.lr_factor;
    const double bias1 = 1 - whole_power(settings.beta1, state.steps);
    const double bias2 = 1 - whole_power(settings.beta2, state.steps);
    return {static_cast<A>(state.gradient_scale), static_cast<A>(settings.beta1),
            static_cast<A>(1 - settings.beta1),   static_cast<A>(settings.beta2),
            static_cast<A>(1 - settings.beta2),   static_cast<A>(1 - lr * settings.weight_decay),
            static_cast<A>(lr / bias1),           static_cast<A>(1 / math::sqrt(bias2)),
            static_cast<A>(settings.epsilon)};
  }

  KEEL_HD void operator()(A gradient, A& weight, A& m, A& v) const {
    const A g = gradient * scale;
    m = keep1 * m + take1 * g;
    v = keep2 * v + take2 * g * g;
    weight = weight * decay - rate * (m / (math::sqrt(v) * inverse_root + epsilon));
  }
};

struct SgdSettings {
  double lr_factor, momentum, dampening, weight_decay;
  bool nesterov;
};
inline SgdSettings settings_of(const SgdArgs& args) {
  return {args.lr_factor, args.momentum, args.dampening, args.weight_decay, args.nesterov};
}

template <class A>
struct SgdRule {
  A scale, rate, decay, keep, take, ahead, behind;
  bool first;  // the buffer begins as the gradient itself; what it held before is not read

  static KEEL_HD SgdRule of(const SgdSettings& settings, const StepState& state) {
    const bool first = state.steps == 1;
    const A keep = static_cast<A>(settings.momentum);
    return {static_cast<A>(state.gradient_scale),
            static_cast<A>(state.lr * settings.lr_factor),
            static_cast<A>(settings.weight_decay),
            keep,
            first ? A(1) : static_cast<A>(1 - settings.dampening),
            settings.nesterov ? A(1) : A(0),
            settings.nesterov ? keep : A(1),
            first};
  }

  KEEL_HD void operator()(A gradient, A& weight) const { weight -= rate * (gradient * scale + decay * weight); }
  KEEL_HD void operator()(A gradient, A& weight, A& buffer) const {
    const A g = gradient * scale + decay * weight;
    buffer = keep * (first ? A(0) : buffer) + take * g;
    weight -= rate * (ahead * g + behind * buffer);
  }
};

}  // namespace keel
