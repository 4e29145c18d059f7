#pragma once
// Lion: the sign of a mean decides. Chen et al. 2023, "Symbolic discovery of optimization algorithms", algorithm 2:
//   p = p * (1 - lr * decay) - lr * sign(beta1 * m + (1 - beta1) * g); m = beta2 * m + (1 - beta2) * g.

#include "keel/kernels/rules/rule.h"

namespace keel {

template <class A>
struct LionRule;

struct LionSettings {
  double beta1 = 0.9, beta2 = 0.99;
  bool maximize = false;

  static constexpr std::string_view kName = "lion";
  template <class A>
  using Rule = LionRule<A>;
  static std::vector<std::string_view> state_names() { return {"m"}; }
  std::string problem() const { return rules::problem_of_betas(beta1, beta2); }
};

template <class A>
struct LionRule {
  A scale, keep1, take1, keep2, take2, decay, rate;

  static KEEL_HD LionRule of(const LionSettings& settings, const RangeSettings& range, const StepState& state,
                             const double*) {
    const double lr = rules::rate_of(range, state), beta1 = rules::momentum_of(settings.beta1, state);
    return {static_cast<A>(rules::gradient_factor(state, settings.maximize)),
            static_cast<A>(beta1),
            static_cast<A>(1 - beta1),
            static_cast<A>(settings.beta2),
            static_cast<A>(1 - settings.beta2),
            static_cast<A>(1 - lr * range.weight_decay),
            static_cast<A>(lr)};
  }

  KEEL_HD void operator()(A gradient, A& weight, A& m) const {
    const A g = gradient * scale;
    weight = weight * decay - rate * rules::sign(keep1 * m + take1 * g);
    m = keep2 * m + take2 * g;
  }
};

}  // namespace keel
