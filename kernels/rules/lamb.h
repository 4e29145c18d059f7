#pragma once
// LAMB: Adam's direction, as long as the weights. You et al. 2020, "Large batch optimization for deep learning:
// training BERT in 76 minutes", algorithm 2:
//   m, v: moving averages of g and g^2; u = (m / bias1) / (sqrt(v / bias2) + epsilon) + decay * p, bias_i = 1 -
//   beta_i^steps;
//   p -= lr * ratio * u, ratio = ||p|| / ||u|| over the whole parameter, and 1 where either is 0.
// The ratio is kept in [min_coeff, max_coeff], as DeepSpeed's FusedLamb has it; NVIDIA's apex has no bounds. As in
// apex, the bias is corrected before the ratio is taken; DeepSpeed corrects the rate behind it, so that its first steps
// are shorter. Without adapt_without_decay the ratio of parameters that do not decay is 1, which is apex's default.

#include "keel/kernels/rules/rule.h"

namespace keel {

template <class A>
struct LambRule;

struct LambSettings {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6;
  double max_coeff = 10, min_coeff = 0.01;
  bool correct_bias = true, adapt_without_decay = true;

  static constexpr std::string_view kName = "lamb";
  static constexpr int kNorms = 2;  // of the weights and of u
  template <class A>
  using Rule = LambRule<A>;
  static std::vector<std::string_view> state_names() { return {"m", "v"}; }
  std::string problem() const {
    if (!(min_coeff >= 0 && min_coeff <= max_coeff))
      return concat("min_coeff must be in [0, max_coeff], got ", min_coeff, " and ", max_coeff);
    return rules::problem_of_betas(beta1, beta2);
  }
};

template <class A>
struct LambRule {
  A scale;
  rules::Means<A> means;
  A inverse1, inverse_root, epsilon, decay, rate;

  static KEEL_HD LambRule of(const LambSettings& settings, const RangeSettings& range, const StepState& state,
                             const double* squares) {
    const double beta1 = rules::momentum_of(settings.beta1, state);
    const double bias1 = settings.correct_bias ? 1 - whole_power(beta1, state.steps) : 1;
    const double bias2 = settings.correct_bias ? 1 - whole_power(settings.beta2, state.steps) : 1;
    const bool adapts = settings.adapt_without_decay || range.weight_decay != 0;
    double ratio = 1;
    if (adapts && squares != nullptr && squares[0] > 0 && squares[1] > 0) {
      ratio = math::sqrt(squares[0] / squares[1]);
      ratio = ratio > settings.max_coeff ? settings.max_coeff : ratio;
      ratio = ratio < settings.min_coeff ? settings.min_coeff : ratio;
    }
    return {static_cast<A>(rules::gradient_factor(state, false)),
            rules::Means<A>::of(beta1, settings.beta2),
            static_cast<A>(1 / bias1),
            static_cast<A>(1 / math::sqrt(bias2)),
            static_cast<A>(settings.epsilon),
            static_cast<A>(range.weight_decay),
            static_cast<A>(rules::rate_of(range, state) * ratio)};
  }

  KEEL_HD Measures<A, 2> measure(A gradient, A weight, A m, A v) const {
    return {{weight, direction(gradient, weight, m, v)}};
  }
  KEEL_HD void operator()(A gradient, A& weight, A& m, A& v) const {
    weight -= rate * direction(gradient, weight, m, v);
  }

 private:
  KEEL_HD A direction(A gradient, A weight, A& m, A& v) const {
    means(gradient * scale, m, v);
    return m * inverse1 / (math::sqrt(v) * inverse_root + epsilon) + decay * weight;
  }
};

}  // namespace keel
