#pragma once
// RMSprop: gradients divided by the root of their mean square, or, centered, by their deviation. Tieleman and Hinton
// 2012; Graves 2013; as PyTorch computes it:
//   g = gradient + decay * p; square, mean: moving averages of g^2 and g;
//   u = g / (sqrt(square - mean^2) + epsilon), mean = 0 unless centered; p -= lr * u,
//   or with momentum: buffer = momentum * buffer + u; p -= lr * buffer.
// Where rounding leaves square below mean^2 the deviation counts as 0, and where both overflow as infinite.

#include "keel/kernels/rules/rule.h"

namespace keel {

template <class A>
struct RmspropRule;

struct RmspropSettings {
  double alpha = 0.99, epsilon = 1e-8, momentum = 0;
  bool centered = false, maximize = false;

  static constexpr std::string_view kName = "rmsprop";
  template <class A>
  using Rule = RmspropRule<A>;
  std::vector<std::string_view> state_names() const {
    std::vector<std::string_view> names = {"square"};
    if (momentum != 0) names.push_back("momentum");
    if (centered) names.push_back("mean");
    return names;
  }
  std::string problem() const {
    if (alpha < 0 || momentum < 0)
      return concat("alpha and momentum must not be negative, got ", alpha, " and ", momentum);
    return "";
  }
};

template <class A>
struct RmspropRule {
  A scale, penalty, keep, take, momentum, rate, epsilon;
  bool centered;

  static KEEL_HD RmspropRule of(const RmspropSettings& settings, const RangeSettings& range, const StepState& state,
                                const double*) {
    return {static_cast<A>(rules::gradient_factor(state, settings.maximize)),
            static_cast<A>(range.weight_decay),
            static_cast<A>(settings.alpha),
            static_cast<A>(1 - settings.alpha),
            static_cast<A>(rules::momentum_of(settings.momentum, state)),
            static_cast<A>(rules::rate_of(range, state)),
            static_cast<A>(settings.epsilon),
            settings.centered};
  }

  KEEL_HD void operator()(A gradient, A& weight, A& square) const {
    const A g = total(gradient, weight, square);
    weight -= rate * (g / (math::sqrt(square) + epsilon));
  }
  // `other`: the mean if centered, else momentum's buffer.
  KEEL_HD void operator()(A gradient, A& weight, A& square, A& other) const {
    const A g = total(gradient, weight, square);
    if (centered) {
      weight -= rate * (g / deviation(g, square, other));
    } else {
      other = momentum * other + g / (math::sqrt(square) + epsilon);
      weight -= rate * other;
    }
  }
  KEEL_HD void operator()(A gradient, A& weight, A& square, A& buffer, A& mean) const {
    const A g = total(gradient, weight, square);
    buffer = momentum * buffer + g / deviation(g, square, mean);
    weight -= rate * buffer;
  }

 private:
  KEEL_HD A total(A gradient, A weight, A& square) const {
    const A g = gradient * scale + penalty * weight;
    square = keep * square + take * g * g;
    return g;
  }
  KEEL_HD A deviation(A g, A square, A& mean) const {
    mean = keep * mean + take * g;
    const A variance = square - mean * mean;
    // The difference of two infinities is no number.
    return math::sqrt(variance == variance ? rules::larger(variance, A(0)) : square) + epsilon;
  }
};

}  // namespace keel
