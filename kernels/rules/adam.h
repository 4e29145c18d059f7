#pragma once
// Adam (Kingma and Ba 2015), AdamW (Loshchilov and Hutter 2019) and their relatives:
//   m, v: moving averages of g and g^2; p -= lr / bias1 * m / (sqrt(v / bias2) + epsilon), bias_i = 1 - beta_i^steps.
// With amsgrad (Reddi et al. 2018) the largest v so far divides. Where the original libraries differ:
//   Adam           g = gradient + decay * p
//   AdamW          p *= 1 - lr * decay before the update
//   Transformers'  AdamW: epsilon is added to sqrt(v) itself, before the correction of its bias, and p decays after the
//                  update; without correct_bias both biases are 1
//   TensorFlow's   AdamW without correction of the bias
//   SparseAdam     PyTorch's: epsilon as in Transformers' AdamW, no decay, and of a table only the rows that were used;
//                  what is kept of the others does not decay, and steps count for all
//   bitsandbytes'  AdamW whose m and v are codes of 8 bits (keel/kernels/dynamic_map.h), but for small parameters

#include "keel/kernels/dynamic_map.h"
#include "keel/kernels/rules/rule.h"

namespace keel {

template <class A>
struct AdamRule;

struct AdamSettings {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  bool amsgrad = false, maximize = false;
  bool decoupled = false;  // decay of the weights themselves; else part of the gradient
  bool correct_bias = true;
  bool epsilon_first = false;      // before the correction of v's bias
  bool decay_last = false;         // after the update; if decoupled
  std::int64_t min_8bit_size = 0;  // parameters of so many elements keep m and v in 8 bits; 0: none does

  static constexpr std::string_view kName = "adam";
  static constexpr bool kTakesRows = true;
  static constexpr bool kSigns[] = {true, false};
  template <class A>
  using Rule = AdamRule<A>;
  std::vector<std::string_view> state_names() const {
    if (amsgrad) return {"m", "v", "v_max"};
    return {"m", "v"};
  }
  std::string problem() const {
    if (min_8bit_size != 0 && min_8bit_size < kStateBlock)
      return concat("min_8bit_size must be at least a block of ", kStateBlock, " elements, or 0, got ", min_8bit_size);
    if (min_8bit_size != 0 && amsgrad) return "amsgrad is not offered in 8 bits";
    return rules::problem_of_betas(beta1, beta2);
  }
};

template <class A>
struct AdamRule {
  A scale, penalty;
  rules::Means<A> means;
  A decay, rate, inverse_root, epsilon;

  static KEEL_HD AdamRule of(const AdamSettings& settings, const RangeSettings& range, const StepState& state,
                             const double*) {
    const double lr = rules::rate_of(range, state);
    const double beta1 = rules::momentum_of(settings.beta1, state);
    const double bias1 = settings.correct_bias ? 1 - whole_power(beta1, state.steps) : 1;
    const double bias2 = settings.correct_bias ? 1 - whole_power(settings.beta2, state.steps) : 1;
    const double decay = settings.decoupled ? 1 - lr * range.weight_decay : 1;
    double rate = lr / bias1, inverse_root = 1 / math::sqrt(bias2);
    if (settings.epsilon_first) {
      rate *= math::sqrt(bias2);
      inverse_root = 1;
    }
    if (settings.decay_last) rate *= decay;
    return {static_cast<A>(rules::gradient_factor(state, settings.maximize)),
            settings.decoupled ? A(0) : static_cast<A>(range.weight_decay),
            rules::Means<A>::of(beta1, settings.beta2),
            static_cast<A>(decay),
            static_cast<A>(rate),
            static_cast<A>(inverse_root),
            static_cast<A>(settings.epsilon)};
  }

  KEEL_HD void operator()(A gradient, A& weight, A& m, A& v) const {
    means(gradient * scale + penalty * weight, m, v);
    weight = weight * decay - rate * (m / (math::sqrt(v) * inverse_root + epsilon));
  }
  KEEL_HD void operator()(A gradient, A& weight, A& m, A& v, A& v_max) const {
    means(gradient * scale + penalty * weight, m, v);
    v_max = rules::larger(v_max, v);
    weight = weight * decay - rate * (m / (math::sqrt(v_max) * inverse_root + epsilon));
  }
};

}  // namespace keel
