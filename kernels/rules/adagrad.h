#pragma once
// Adagrad: rates that fall with the sum of squares so far. Duchi et al. 2011, as PyTorch computes it:
//   g = gradient + decay * p; sum += g^2; p -= lr / (1 + (t - 1) * lr_decay) * g / (sqrt(sum) + epsilon).

#include "keel/kernels/rules/rule.h"

namespace keel {

template <class A>
struct AdagradRule;

struct AdagradSettings {
  double lr_decay = 0, initial_accumulator = 0, epsilon = 1e-10;
  bool maximize = false;

  static constexpr std::string_view kName = "adagrad";
  template <class A>
  using Rule = AdagradRule<A>;
  static std::vector<std::string_view> state_names() { return {"sum"}; }
  double initial_state(std::size_t) const { return initial_accumulator; }
  std::string problem() const {
    if (lr_decay < 0 || initial_accumulator < 0)
      return concat("lr_decay and initial_accumulator must not be negative, got ", lr_decay, " and ",
                    initial_accumulator);
    return "";
  }
};

template <class A>
struct AdagradRule {
  A scale, penalty, rate, epsilon;

  static KEEL_HD AdagradRule of(const AdagradSettings& settings, const RangeSettings& range, const StepState& state,
                                const double*) {
    const double before = static_cast<double>(state.steps - 1);
    return {static_cast<A>(rules::gradient_factor(state, settings.maximize)), static_cast<A>(range.weight_decay),
            static_cast<A>(rules::rate_of(range, state) / (1 + before * settings.lr_decay)),
            static_cast<A>(settings.epsilon)};
  }

  KEEL_HD void operator()(A gradient, A& weight, A& sum) const {
    const A g = gradient * scale + penalty * weight;
    sum += g * g;
    weight -= rate * (g / (math::sqrt(sum) + epsilon));
  }
};

}  // namespace keel
