#pragma once
// RAdam: Adam that trusts the mean square only once enough steps have made it. Liu et al. 2020, as PyTorch computes it:
//   rho_inf = 2 / (1 - beta2) - 1; rho = rho_inf - 2 t beta2^t / bias2;
//   p -= lr * m / bias1, and from rho > 5 on times r * sqrt(bias2) / (sqrt(v) + epsilon),
//   r^2 = (rho - 4) (rho - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho).

#include "keel/kernels/rules/rule.h"

namespace keel {

template <class A>
struct RAdamRule;

struct RAdamSettings {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  bool decoupled = false, maximize = false;

  static constexpr std::string_view kName = "radam";
  template <class A>
  using Rule = RAdamRule<A>;
  static std::vector<std::string_view> state_names() { return {"m", "v"}; }
  std::string problem() const { return rules::problem_of_betas(beta1, beta2); }
};

template <class A>
struct RAdamRule {
  A scale, penalty;
  rules::Means<A> means;
  A decay, rate, epsilon;
  bool adaptive;

  static KEEL_HD RAdamRule of(const RAdamSettings& settings, const RangeSettings& range, const StepState& state,
                              const double*) {
    const double lr = rules::rate_of(range, state), power2 = whole_power(settings.beta2, state.steps);
    const double beta1 = rules::momentum_of(settings.beta1, state);
    const double bias1 = 1 - whole_power(beta1, state.steps), bias2 = 1 - power2;
    const double longest = 2 / (1 - settings.beta2) - 1;
    const double length = longest - 2 * static_cast<double>(state.steps) * power2 / bias2;
    const bool adaptive = length > 5;
    double rate = lr / bias1;
    if (adaptive)
      rate *= math::sqrt(bias2) *
              math::sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length));
    return {static_cast<A>(rules::gradient_factor(state, settings.maximize)),
            settings.decoupled ? A(0) : static_cast<A>(range.weight_decay),
            rules::Means<A>::of(beta1, settings.beta2),
            settings.decoupled ? static_cast<A>(1 - lr * range.weight_decay) : A(1),
            static_cast<A>(rate),
            static_cast<A>(settings.epsilon),
            adaptive};
  }

  KEEL_HD void operator()(A gradient, A& weight, A& m, A& v) const {
    means(gradient * scale + penalty * weight, m, v);
    const A root = math::sqrt(v) + epsilon;
    weight = weight * decay - rate * (m / (adaptive ? root : A(1)));
  }
};

}  // namespace keel
