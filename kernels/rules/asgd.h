#pragma once
// ASGD: descent with a falling rate, and the average of the weights that it passes. Polyak and Juditsky 1992; Bottou's
// rate; as PyTorch computes it:
//   g = gradient + decay * p; p = p * (1 - lambd * eta) - eta * g; average += (p - average) * mu;
//   eta = lr / (1 + lambd * lr * (t - 1))^alpha with the lr of the step before, at first lr itself;
//   mu = 1 / max(1, t - 1 - t0).
// The average is kept beside the weights; the model computes with the weights.

#include "keel/kernels/rules/rule.h"

namespace keel {

template <class A>
struct AsgdRule;

struct AsgdSettings {
  double lambd = 1e-4, alpha = 0.75, t0 = 1e6;
  bool maximize = false;

  static constexpr std::string_view kName = "asgd";
  static constexpr SharedNumber kShared = {"rate_before", 0};
  template <class A>
  using Rule = AsgdRule<A>;
  static std::vector<std::string_view> state_names() { return {"average"}; }
  std::string problem() const { return lambd >= 0 ? "" : concat("lambd must not be negative, got ", lambd); }
};

template <class A>
struct AsgdRule {
  A scale, penalty, decay, eta, mu;

  static KEEL_HD double advance(const AsgdSettings&, const StepState& state, double) { return state.lr; }

  static KEEL_HD AsgdRule of(const AsgdSettings& settings, const RangeSettings& range, const StepState& state,
                             const double* shared) {
    const auto before = static_cast<double>(state.steps - 1);
    const double lr = (state.steps == 1 ? state.lr : *shared) * range.lr_factor;
    const double eta = lr / real_power(1 + settings.lambd * lr * before, settings.alpha);
    return {static_cast<A>(rules::gradient_factor(state, settings.maximize)), static_cast<A>(range.weight_decay),
            static_cast<A>(1 - settings.lambd * eta), static_cast<A>(eta),
            static_cast<A>(1 / rules::larger(1.0, before - settings.t0))};
  }

  KEEL_HD void operator()(A gradient, A& weight, A& average) const {
    const A g = gradient * scale + penalty * weight;
    weight = weight * decay - eta * g;
    average = mu == 1 ? weight : average + (weight - average) * mu;
  }
};

}  // namespace keel
