#pragma once
// LARS: stochastic gradient descent whose steps are a part of the weights' length. You et al. 2017, "Large batch
// training of convolutional networks":
//   d = ratio * (g + decay * p), ratio = trust * ||p|| / (||g|| + decay * ||p|| + epsilon) over the whole parameter;
//   buffer = momentum * buffer + (1 - dampening) * d, at first d; p -= lr * buffer, or lr * (d + momentum * buffer)
//   with nesterov.
// As in NVIDIA's apex (LARC) and PyTorch's SGD, the rate is outside of the buffer, where the paper has it inside; and
// where a norm is 0, d = g. Biases and norms (rank 0 and 1) keep d = g + decay * p.

#include "keel/kernels/rules/rule.h"

namespace keel {

template <class A>
struct LarsRule;

struct LarsSettings {
  double momentum = 0.9, dampening = 0;
  double trust_coefficient = 1e-3, epsilon = 1e-8;
  bool nesterov = false;

  static constexpr std::string_view kName = "lars";
  static constexpr int kNorms = 2;  // of the weights and of the gradient
  template <class A>
  using Rule = LarsRule<A>;
  std::vector<std::string_view> state_names() const {
    if (momentum == 0) return {};
    return {"momentum"};
  }
  std::string problem() const {
    if (momentum < 0) return concat("momentum must not be negative, got ", momentum);
    if (!(trust_coefficient > 0)) return concat("trust_coefficient must be above 0, got ", trust_coefficient);
    if (nesterov && (momentum == 0 || dampening != 0))
      return concat("nesterov needs a momentum above 0 and no dampening, got ", momentum, " and ", dampening);
    return "";
  }
};

template <class A>
struct LarsRule {
  A scale, ratio, decay, rate, keep, take, ahead, behind;
  bool first;  // the buffer begins as d itself; what it held before is not read

  static KEEL_HD LarsRule of(const LarsSettings& settings, const RangeSettings& range, const StepState& state,
                             const double* squares) {
    double ratio = 1, decay = range.weight_decay;
    if (!range.is_vector && squares != nullptr) {
      const double weight = math::sqrt(squares[0]), gradient = math::sqrt(squares[1]);
      if (weight > 0 && gradient > 0)
        ratio = settings.trust_coefficient * weight / (gradient + decay * weight + settings.epsilon);
      else decay = 0;
    }
    const bool first = state.steps == 1;
    const A keep = static_cast<A>(rules::momentum_of(settings.momentum, state));
    return {static_cast<A>(rules::gradient_factor(state, false)),
            static_cast<A>(ratio),
            static_cast<A>(decay),
            static_cast<A>(rules::rate_of(range, state)),
            keep,
            first ? A(1) : static_cast<A>(1 - settings.dampening),
            settings.nesterov ? A(1) : A(0),
            settings.nesterov ? keep : A(1),
            first};
  }

  template <class... Kept>
  KEEL_HD Measures<A, 2> measure(A gradient, A weight, Kept...) const {
    return {{weight, gradient * scale}};
  }
  KEEL_HD void operator()(A gradient, A& weight) const { weight -= rate * direction(gradient, weight); }
  KEEL_HD void operator()(A gradient, A& weight, A& buffer) const {
    const A d = direction(gradient, weight);
    buffer = keep * (first ? A(0) : buffer) + take * d;
    weight -= rate * (ahead * d + behind * buffer);
  }

 private:
  KEEL_HD A direction(A gradient, A weight) const { return ratio * (gradient * scale + decay * weight); }
};

}  // namespace keel
