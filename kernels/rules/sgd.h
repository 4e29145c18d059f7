#pragma once
// Stochastic gradient descent; with momentum, Polyak's or Nesterov's as Sutskever et al. 2013 state it, and as PyTorch
// computes it:
//   g = gradient + decay * p; buffer = momentum * buffer + (1 - dampening) * g, at first g;
//   p -= lr * buffer, or lr * (g + momentum * buffer) with nesterov.

#include "keel/kernels/rules/rule.h"

namespace keel {

template <class A>
struct SgdRule;

struct SgdSettings {
  double momentum = 0, dampening = 0;
  bool nesterov = false, maximize = false;

  static constexpr std::string_view kName = "sgd";
  template <class A>
  using Rule = SgdRule<A>;
  std::vector<std::string_view> state_names() const {
    if (momentum == 0) return {};
    return {"momentum"};
  }
  std::string problem() const {
    if (momentum < 0) return concat("momentum must not be negative, got ", momentum);
    if (nesterov && (momentum == 0 || dampening != 0))
      return concat("nesterov needs a momentum above 0 and no dampening, got ", momentum, " and ", dampening);
    return "";
  }
};

template <class A>
struct SgdRule {
  A scale, rate, decay, keep, take, ahead, behind;
  bool first;  // the buffer begins as the gradient itself; what it held before is not read

  static KEEL_HD SgdRule of(const SgdSettings& settings, const RangeSettings& range, const StepState& state,
                            const double*) {
    const bool first = state.steps == 1;
    const A keep = static_cast<A>(rules::momentum_of(settings.momentum, state));
    return {static_cast<A>(rules::gradient_factor(state, settings.maximize)),
            static_cast<A>(rules::rate_of(range, state)),
            static_cast<A>(range.weight_decay),
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
