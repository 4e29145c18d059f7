#pragma once
// Adafactor: mean squares of a matrix by its rows and columns alone, and steps as long as the weights. Shazeer and
// Stern 2018, "Adafactor: adaptive learning rates with sublinear memory cost", as Transformers computes it:
//   v: moving average of g^2 + eps_gradient, whose decay rate is 1 - steps^decay_rate; u = g / sqrt(v);
//   u /= max(1, rms(u) / clip_threshold); a = rate * max(eps_weight, rms(p)); p -= a * decay * p + a * u.
// rms: the root of the mean square over the whole parameter. Without scale_parameter a = rate. The rate is the step's;
// with relative_step times min(1e-2, 1 / sqrt(steps)), or min(1e-6 steps, 1 / sqrt(steps)) with warmup_init. With beta1
// the weights take the moving average of a * u.
//
// What v of a matrix is made of: keel/kernels/factors.h. The rule is then given the root of v, which has half of v's
// powers of ten, and leaves it as it is.

#include <limits>

#include "keel/kernels/rules/rule.h"

namespace keel {

template <class A>
struct AdafactorRule;

struct AdafactorSettings {
  double eps_gradient = 1e-30, eps_weight = 1e-3;
  double clip_threshold = 1, decay_rate = -0.8;
  double beta1 = 0;  // 0: no average is kept
  bool scale_parameter = true, relative_step = true, warmup_init = false;
  bool given_root = false;  // what is given as v is the root of this step's

  static constexpr std::string_view kName = "adafactor";
  static constexpr int kNorms = 2;  // of the weights and of u
  template <class A>
  using Rule = AdafactorRule<A>;
  std::vector<std::string_view> state_names() const {
    if (beta1 == 0) return {"v"};
    return {"v", "m"};
  }
  std::string problem() const {
    if (!(eps_gradient > 0 && eps_weight >= 0))
      return concat("epsilons must be one above 0 and one that is not negative, got ", eps_gradient, " and ",
                    eps_weight);
    if (static_cast<float>(eps_gradient) == 0)
      return concat("eps_gradient of ", eps_gradient, " is 0 in fp32; it keeps means of squares above 0");
    if (!(clip_threshold > 0)) return concat("clip_threshold must be above 0, got ", clip_threshold);
    if (!(decay_rate <= 0)) return concat("decay_rate must not be above 0, got ", decay_rate);
    if (!(beta1 >= 0 && beta1 < 1)) return concat("beta1 must be in [0, 1), or none, got ", beta1);
    if (warmup_init && !relative_step) return "warmup_init needs relative_step";
    return "";
  }
};

namespace rules {

// How much of the means is kept in this step; nothing in the first.
KEEL_HD inline double kept_of_squares(const AdafactorSettings& settings, const StepState& state) {
  return 1 - real_power(static_cast<double>(state.steps), settings.decay_rate);
}

// Takes the sum of so many squares into the moving average of their mean, which stays finite, and gives the average.
struct Settling {
  double keep, epsilon;
  KEEL_HD Settling(const AdafactorSettings& settings, const StepState& state)
      : keep(kept_of_squares(settings, state)), epsilon(settings.eps_gradient) {}
  template <class A>
  KEEL_HD double operator()(A& average, double sum, std::int64_t count) const {
    constexpr double kMost = std::numeric_limits<A>::max();
    const double next = keep * static_cast<double>(average) + (1 - keep) * (sum / static_cast<double>(count) + epsilon);
    average = static_cast<A>(next < kMost ? next : kMost);
    return static_cast<double>(average);
  }
};

// The root of v from its factors. Where no gradient has come yet, v may be less than any number of type A: there 0 is
// divided by the smallest normal one.
template <class A>
KEEL_HD A root_of_factors(double row, double column) {
  constexpr double kLeast = std::numeric_limits<A>::min();
  return static_cast<A>(larger(math::sqrt(row * column), kLeast));
}

}  // namespace rules

template <class A>
struct AdafactorRule {
  A scale, keep, take, epsilon, rate, decay, keep1, take1;
  bool given;

  static KEEL_HD AdafactorRule of(const AdafactorSettings& settings, const RangeSettings& range, const StepState& state,
                                  const double* squares) {
    const double keep = rules::kept_of_squares(settings, state);
    const auto steps = static_cast<double>(state.steps), numel = static_cast<double>(range.numel);
    double rate = rules::rate_of(range, state), clip = 1;
    if (settings.relative_step) {
      const double most = settings.warmup_init ? 1e-6 * steps : 1e-2, slow = 1 / math::sqrt(steps);
      rate *= slow < most ? slow : most;
    }
    if (squares != nullptr) {
      const double weight = math::sqrt(squares[0] / numel), step = math::sqrt(squares[1] / numel);
      if (settings.scale_parameter) rate *= weight > settings.eps_weight ? weight : settings.eps_weight;
      clip = step > settings.clip_threshold ? step / settings.clip_threshold : 1;
    }
    return {static_cast<A>(rules::gradient_factor(state, false)),
            static_cast<A>(keep),
            static_cast<A>(1 - keep),
            static_cast<A>(settings.eps_gradient),
            static_cast<A>(rate / clip),
            static_cast<A>(1 - rate * range.weight_decay),
            static_cast<A>(settings.beta1),
            static_cast<A>(1 - settings.beta1),
            settings.given_root};
  }

  template <class... Kept>
  KEEL_HD Measures<A, 2> measure(A gradient, A weight, A v, Kept...) const {
    return {{weight, direction(gradient, v)}};
  }
  KEEL_HD void operator()(A gradient, A& weight, A& v) const {
    weight = weight * decay - rate * direction(gradient, v);
  }
  KEEL_HD void operator()(A gradient, A& weight, A& v, A& m) const {
    m = keep1 * m + take1 * (rate * direction(gradient, v));
    weight = weight * decay - m;
  }

 private:
  KEEL_HD A direction(A gradient, A& v) const {
    const A g = gradient * scale;
    if (given) return g / v;
    v = keep * v + take * (g * g + epsilon);
    return g / math::sqrt(v);
  }
};

}  // namespace keel
