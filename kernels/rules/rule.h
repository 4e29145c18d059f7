#pragma once
// What the update rules of optimizers share.
//
// An optimizer that treats each number for itself is two types. Its settings, plain numbers that the host checks:
//
//   struct XSettings {
//     static constexpr std::string_view kName;       // for messages
//     std::vector<std::string_view> state_names();   // what is kept for each number
//     std::string problem();                         // what is wrong with the settings; empty: nothing
//     double initial_state(std::size_t kind);        // optional: what a state begins as, instead of 0
//     static constexpr SharedNumber kShared;         // optional: a number that all elements share
//     static constexpr bool kDecays = false;         // optional: there is no weight decay
//     static constexpr bool kTakesRows = true;       // optional: may update single rows of a table
//     static constexpr int kNorms = 2;               // optional: norms over whole parameters that the rule needs
//     static constexpr bool kSigns[] = {true};       // optional: states may be kept in 8 bits; which have signs
//     template <class A> using Rule = XRule<A>;
//   };
//
// And its rule, the numbers of one step rounded to the type A of the weights; called for each element with its
// gradient, its weight and what is kept for it:
//
//   static XRule of(const XSettings&, const RangeSettings&, const StepState&, const double* given);
//   void operator()(A gradient, A& weight, A& kept...) const;
//   static double advance(const XSettings&, const StepState&, double shared);   // with kShared: after the step
//   Measures<A, kNorms> measure(A gradient, A weight, A kept...) const;         // with kNorms: before the update
//
// `given` is the shared number, or the squares of the norms: the numbers that measure() finds of an element, squared
// and summed over the whole parameter. It is null while they are being measured.
//
// The list of all settings (keel/kernels/update.h) makes the loop of every device from them.

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "keel/kernels/shared_number.h"
#include "keel/kernels/step_state.h"
#include "keel/runtime/error.h"
#include "keel/runtime/hd.h"
#include "keel/runtime/math.h"

namespace keel {

// What may differ from one group of parameters to another.
struct RangeSettings {
  double lr_factor = 1;
  double weight_decay = 0;
  // For rules with norms, which measure the whole parameter:
  bool is_vector = false;  // rank 0 or 1
  std::int64_t numel = 1;
};

// What a rule measures of an element.
template <class A, int kCount>
struct Measures {
  A values[kCount];
};

namespace rules {

// The optimizer's momentum or beta1, unless a schedule cycles it.
KEEL_HD inline double momentum_of(double own, const StepState& state) {
  return state.momentum == StepState::kOwnMomentum ? own : state.momentum;
}

KEEL_HD inline double rate_of(const RangeSettings& range, const StepState& state) { return state.lr * range.lr_factor; }

// The factor on every gradient.
KEEL_HD inline double gradient_factor(const StepState& state, bool maximize) {
  return maximize ? -state.gradient_scale : state.gradient_scale;
}

template <class A>
KEEL_HD A larger(A a, A b) {
  return a > b ? a : b;
}
// -1, 0 or 1.
template <class A>
KEEL_HD A sign(A x) {
  return x > 0 ? A(1) : x < 0 ? A(-1) : x;
}

// Running means of a gradient and of its square, as Adam and its kin keep them.
template <class A>
struct Means {
  A keep1, take1, keep2, take2;

  static KEEL_HD Means of(double beta1, double beta2) {
    return {static_cast<A>(beta1), static_cast<A>(1 - beta1), static_cast<A>(beta2), static_cast<A>(1 - beta2)};
  }
  KEEL_HD void operator()(A g, A& m, A& v) const {
    m = keep1 * m + take1 * g;
    v = keep2 * v + take2 * g * g;
  }
};

// What is wrong with a pair of decay rates of means; empty: nothing.
inline std::string problem_of_betas(double beta1, double beta2) {
  if (beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1) return "";
  return concat("betas must be in [0, 1), got ", beta1, " and ", beta2);
}

}  // namespace rules

// base^n, n >= 0, by squaring: with products alone, so that every device finds the same.
KEEL_HD inline double whole_power(double base, std::int64_t n) {
  double power = 1;
  for (; n > 0; n /= 2, base *= base)
    if (n % 2 == 1) power *= base;
  return power;
}

// base^exponent for a normal base > 0, within 1e-14 for results that are not far from 1. Sums, products and quotients
// alone, so that every device finds the same; for numbers that a step needs once.
KEEL_HD inline double real_power(double base, double exponent) {
  // base = 2^e m, m between the roots of 1/2 and 2; log m = 2 artanh((m - 1) / (m + 1)), as a series.
  constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;
  const auto bits = std::bit_cast<std::uint64_t>(base);
  auto e = static_cast<std::int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
  if (m > 0x1.6a09e667f3bcdp+0) {
    m *= 0.5;
    ++e;
  }
  const double s = (m - 1) / (m + 1), square = s * s;
  double series = 0;
  for (int k = 14; k >= 0; --k) series = series * square + 1.0 / (2 * k + 1);
  const auto scale = static_cast<double>(e);
  const double y = exponent * (scale * kLn2High + (scale * kLn2Low + 2 * s * series));
  // e^y = 2^n e^r with |r| < 0.35.
  double n = math::floor(y * 0x1.71547652b82fep+0 + 0.5);
  n = n > 1023 ? 1023 : n < -1022 ? -1022 : n;
  const double r = (y - n * kLn2High) - n * kLn2Low;
  double power = 1;
  for (int k = 18; k >= 1; --k) power = power * r / k + 1;
  return power * std::bit_cast<double>(static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023) << 52);
}

}  // namespace keel
