#pragma once
// NAdam: Adam with Nesterov's momentum, whose strength grows from step to step. Dozat 2016, as PyTorch computes it:
//   mu_t = beta1 * (1 - 0.96^(t * momentum_decay) / 2); P: the product of all mu so far, shared by all elements;
//   p -= lr / (sqrt(v / bias2) + epsilon) * ((1 - mu_t) / (1 - P) * g + mu_(t+1) / (1 - P * mu_(t+1)) * m).

#include "keel/kernels/rules/rule.h"

namespace keel {

template <class A>
struct NAdamRule;

struct NAdamSettings {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, momentum_decay = 4e-3;
  bool decoupled = false, maximize = false;

  static constexpr std::string_view kName = "nadam";
  static constexpr SharedNumber kShared = {"mu_product", 1};
  template <class A>
  using Rule = NAdamRule<A>;
  static std::vector<std::string_view> state_names() { return {"m", "v"}; }
  std::string problem() const {
    if (momentum_decay < 0) return concat("momentum_decay must not be negative, got ", momentum_decay);
    return rules::problem_of_betas(beta1, beta2);
  }
};

template <class A>
struct NAdamRule {
  A scale, penalty;
  rules::Means<A> means;
  A decay, gradient_rate, mean_rate, inverse_root, epsilon;

  static KEEL_HD double mu(const NAdamSettings& settings, const StepState& state, std::int64_t step) {
    return rules::momentum_of(settings.beta1, state) *
           (1 - 0.5 * real_power(0.96, static_cast<double>(step) * settings.momentum_decay));
  }
  static KEEL_HD double advance(const NAdamSettings& settings, const StepState& state, double product) {
    return product * mu(settings, state, state.steps);
  }

  static KEEL_HD NAdamRule of(const NAdamSettings& settings, const RangeSettings& range, const StepState& state,
                              const double* shared) {
    const double lr = rules::rate_of(range, state);
    const double now = mu(settings, state, state.steps), next = mu(settings, state, state.steps + 1),
                 product = *shared * now;
    const double bias2 = 1 - whole_power(settings.beta2, state.steps);
    return {static_cast<A>(rules::gradient_factor(state, settings.maximize)),
            settings.decoupled ? A(0) : static_cast<A>(range.weight_decay),
            rules::Means<A>::of(rules::momentum_of(settings.beta1, state), settings.beta2),
            settings.decoupled ? static_cast<A>(1 - lr * range.weight_decay) : A(1),
            static_cast<A>(lr * (1 - now) / (1 - product)),
            static_cast<A>(lr * next / (1 - product * next)),
            static_cast<A>(1 / math::sqrt(bias2)),
            static_cast<A>(settings.epsilon)};
  }

  KEEL_HD void operator()(A gradient, A& weight, A& m, A& v) const {
    const A g = gradient * scale + penalty * weight;
    means(g, m, v);
    weight = weight * decay - (gradient_rate * g + mean_rate * m) / (math::sqrt(v) * inverse_root + epsilon);
  }
};

}  // namespace keel
