#pragma once
// Rprop: a step size for each weight, which grows while the gradient keeps its sign and shrinks where that turns; the
// size of the gradient does not count. Riedmiller and Braun 1993, as PyTorch computes it:
//   step *= grow, shrink or 1, as g * previous is above, below or at 0; within [least, most]; at first it is lr;
//   where the sign has turned g = 0; p -= sign(g) * step; previous = g.

#include "keel/kernels/rules/rule.h"

namespace keel {

template <class A>
struct RpropRule;

struct RpropSettings {
  double shrink = 0.5, grow = 1.2, least = 1e-6, most = 50;
  bool maximize = false;

  static constexpr std::string_view kName = "rprop";
  static constexpr bool kDecays = false;
  template <class A>
  using Rule = RpropRule<A>;
  static std::vector<std::string_view> state_names() { return {"previous", "step"}; }
  std::string problem() const {
    if (!(0 < shrink && shrink < 1 && 1 < grow))
      return concat("etas must be a factor between 0 and 1 and one above 1, got ", shrink, " and ", grow);
    if (!(0 <= least && least <= most))
      return concat("step sizes must go from small to large, got ", least, " and ", most);
    return "";
  }
};

template <class A>
struct RpropRule {
  A scale, rate, shrink, grow, least, most;
  bool first;  // the step sizes begin as the rate; what they held before is not read

  static KEEL_HD RpropRule of(const RpropSettings& settings, const RangeSettings& range, const StepState& state,
                              const double*) {
    return {static_cast<A>(rules::gradient_factor(state, settings.maximize)),
            static_cast<A>(rules::rate_of(range, state)),
            static_cast<A>(settings.shrink),
            static_cast<A>(settings.grow),
            static_cast<A>(settings.least),
            static_cast<A>(settings.most),
            state.steps == 1};
  }

  KEEL_HD void operator()(A gradient, A& weight, A& previous, A& step) const {
    const A g = gradient * scale, turn = g * previous;
    A factor = turn > 0 ? grow : A(1);
    factor = turn < 0 ? shrink : factor;
    A size = (first ? rate : step) * factor;
    size = size < least ? least : size;
    size = size > most ? most : size;
    const A taken = turn < 0 ? A(0) : g;
    step = size;
    weight -= rules::sign(taken) * size;
    previous = taken;
  }
};

}  // namespace keel
