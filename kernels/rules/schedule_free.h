#pragma once
// AdamW without a schedule: Defazio et al. 2024, "The road less scheduled", algorithm 1 with AdamW, as the package
// schedulefree computes it. The gradient g is taken at y, which lies between z, which moves, and x, the mean of all z:
//   y = x + (1 - beta1) (z - x); v = beta2 * v + (1 - beta2) * g^2;
//   z -= lr * (g / (sqrt(v / (1 - beta2^steps)) + epsilon) + decay * y);
//   x += c * (z - x) with c = w / (sum of all w so far), w = steps^r * lr^weight_lr_power.
// So steps of a warm-up count for little. The weights are x; kept are z - x, "lead", which begins as 0, and v. The
// package takes the largest rate so far for w, which is another only where rates fall.

#include "keel/kernels/rules/rule.h"

namespace keel {

template <class A>
struct ScheduleFreeRule;

struct ScheduleFreeSettings {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_lr_power = 2, r = 0;
  bool maximize = false;

  static constexpr std::string_view kName = "schedule_free";
  static constexpr SharedNumber kShared = {"weight_sum", 0};
  template <class A>
  using Rule = ScheduleFreeRule<A>;
  static std::vector<std::string_view> state_names() { return {"lead", "v"}; }
  std::string problem() const {
    if (weight_lr_power < 0) return concat("weight_lr_power must not be negative, got ", weight_lr_power);
    if (r < 0) return concat("r must not be negative, got ", r);
    return rules::problem_of_betas(beta1, beta2);
  }
};

template <class A>
struct ScheduleFreeRule {
  A scale, keep2, take2, toward_z, inverse_root, epsilon, decay, rate, share;

  static KEEL_HD double power(double base, double exponent) {
    if (exponent == 0) return 1;
    if (exponent == 2) return base * base;
    return base > 0 ? real_power(base, exponent) : 0;
  }
  // Of the step's z in the mean.
  static KEEL_HD double weight(const ScheduleFreeSettings& settings, const StepState& state) {
    return power(static_cast<double>(state.steps), settings.r) * power(state.lr, settings.weight_lr_power);
  }
  static KEEL_HD double advance(const ScheduleFreeSettings& settings, const StepState& state, double sum) {
    return sum + weight(settings, state);
  }

  static KEEL_HD ScheduleFreeRule of(const ScheduleFreeSettings& settings, const RangeSettings& range,
                                     const StepState& state, const double* sum) {
    const double own = weight(settings, state), all = *sum + own;
    return {static_cast<A>(rules::gradient_factor(state, settings.maximize)),
            static_cast<A>(settings.beta2),
            static_cast<A>(1 - settings.beta2),
            static_cast<A>(1 - settings.beta1),
            static_cast<A>(1 / math::sqrt(1 - whole_power(settings.beta2, state.steps))),
            static_cast<A>(settings.epsilon),
            static_cast<A>(range.weight_decay),
            static_cast<A>(rules::rate_of(range, state)),
            static_cast<A>(all > 0 ? own / all : 0)};
  }

  KEEL_HD void operator()(A gradient, A& x, A& lead, A& v) const {
    const A g = gradient * scale, y = x + toward_z * lead;
    v = keep2 * v + take2 * g * g;
    const A ahead = lead - rate * (g / (math::sqrt(v) * inverse_root + epsilon) + decay * y);
    const A step = share * ahead;
    x += step;
    lead = ahead - step;
  }
};

}  // namespace keel
