#pragma once
// Adamax: Adam with a decaying maximum of the gradients instead of their mean square. Kingma and Ba 2015, section 7, as
// PyTorch computes it:
//   g = gradient + decay * p; m: moving average; largest = max(beta2 * largest, |g| + epsilon);
//   p -= lr / (1 - beta1^steps) * m / largest.

#include "keel/kernels/rules/rule.h"

namespace keel {

template <class A>
struct AdamaxRule;

struct AdamaxSettings {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  bool maximize = false;

  static constexpr std::string_view kName = "adamax";
  template <class A>
  using Rule = AdamaxRule<A>;
  static std::vector<std::string_view> state_names() { return {"m", "largest"}; }
  std::string problem() const { return rules::problem_of_betas(beta1, beta2); }
};

template <class A>
struct AdamaxRule {
  A scale, penalty, keep1, take1, keep2, rate, epsilon;

  static KEEL_HD AdamaxRule of(const AdamaxSettings& settings, const RangeSettings& range, const StepState& state,
                               const double*) {
    const double beta1 = rules::momentum_of(settings.beta1, state), bias1 = 1 - whole_power(beta1, state.steps);
    return {static_cast<A>(rules::gradient_factor(state, settings.maximize)),
            static_cast<A>(range.weight_decay),
            static_cast<A>(beta1),
            static_cast<A>(1 - beta1),
            static_cast<A>(settings.beta2),
            static_cast<A>(rules::rate_of(range, state) / bias1),
            static_cast<A>(settings.epsilon)};
  }

  KEEL_HD void operator()(A gradient, A& weight, A& m, A& largest) const {
    const A g = gradient * scale + penalty * weight;
    m = keep1 * m + take1 * g;
    largest = rules::larger(keep2 * largest, math::abs(g) + epsilon);
    weight -= rate * (m / largest);
  }
};

}  // namespace keel
