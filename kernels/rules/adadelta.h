#pragma once
// Adadelta: the gradient, scaled by the typical step so far over the typical gradient so far. Zeiler 2012, as PyTorch
// computes it:
//   g = gradient + decay * p; square = rho * square + (1 - rho) g^2;
//   delta = sqrt(moved + epsilon) / sqrt(square + epsilon) * g; moved = rho * moved + (1 - rho) delta^2; p -= lr *
//   delta.

#include "keel/kernels/rules/rule.h"

namespace keel {

template <class A>
struct AdadeltaRule;

struct AdadeltaSettings {
  double rho = 0.9, epsilon = 1e-6;
  bool maximize = false;

  static constexpr std::string_view kName = "adadelta";
  template <class A>
  using Rule = AdadeltaRule<A>;
  static std::vector<std::string_view> state_names() { return {"square", "moved"}; }
  std::string problem() const { return rho >= 0 && rho <= 1 ? "" : concat("rho must be in [0, 1], got ", rho); }
};

template <class A>
struct AdadeltaRule {
  A scale, penalty, keep, take, rate, epsilon;

  static KEEL_HD AdadeltaRule of(const AdadeltaSettings& settings, const RangeSettings& range, const StepState& state,
                                 const double*) {
    return {static_cast<A>(rules::gradient_factor(state, settings.maximize)),
            static_cast<A>(range.weight_decay),
            static_cast<A>(settings.rho),
            static_cast<A>(1 - settings.rho),
            static_cast<A>(rules::rate_of(range, state)),
            static_cast<A>(settings.epsilon)};
  }

  KEEL_HD void operator()(A gradient, A& weight, A& square, A& moved) const {
    const A g = gradient * scale + penalty * weight;
    square = keep * square + take * g * g;
    const A delta = math::sqrt(moved + epsilon) / math::sqrt(square + epsilon) * g;
    moved = keep * moved + take * delta * delta;
    weight -= rate * delta;
  }
};

}  // namespace keel
