#include <algorithm>
#include <cmath>

#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/update_range.h"
#include "keel/kernels/step_rule.h"
#include "keel/kernels/update_rule.h"

namespace keel::cpu {
namespace {

// The update of all elements by one rule, which keeps so many numbers, in types P and G of parameter and gradient.
template <class P, class G, std::size_t... I, class Settings>
void update_by(const Settings& settings, const UpdateArgs& args, std::index_sequence<I...>) {
  using A = Accumulator<P>;
  const StepState& state = state_of(args.step);
  const double* shared = args.shared.defined() ? args.shared.data<double>() : nullptr;
  const auto rule = Settings::template Rule<A>::of(settings, args.range, state, shared);
  const PhiloxKey key = rounding_key(rounding_seed(args.seed), state.steps);
  const auto update_at = [&](std::int64_t begin, std::int64_t count, std::int64_t gradient_begin) {
    update_range(rule, Range<P, G>(args, begin, count, gradient_begin),
                 {args.stochastic_rounding, key, static_cast<std::uint64_t>(args.first + begin)},
                 (args.state[I].template data<A>() + begin)...);
  };
  const Context& context = args.parameter.context();
  if constexpr (kUpdatesRows<Settings>) {
    if (args.rows.defined()) {
      const std::int64_t* const rows = args.rows.data<std::int64_t>();
      const std::int64_t width = args.gradient.dim(1);
      parallel_for(context, args.rows.numel(), row_grain(width), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) update_at(rows[i] * width, width, i * width);
      });
      return;
    }
  }
  parallel_for(context, args.parameter.numel(), kElementGrain,
               [&](std::int64_t begin, std::int64_t end) { update_at(begin, end - begin, begin); });
}

void update(const UpdateArgs& args) {
  if (state_of(args.step).taken == 0) return;
  visit_rule(
      [&](const auto& settings) {
        visit_kept(settings, [&]<std::size_t kKept>(std::integral_constant<std::size_t, kKept>) {
          visit_floating(args.parameter.dtype(), [&](auto tag) {
            using P = typename decltype(tag)::type;
            constexpr auto kEach = std::make_index_sequence<kKept>{};
            if (args.gradient.dtype() == args.parameter.dtype()) update_by<P, P>(settings, args, kEach);
            else update_by<P, float>(settings, args, kEach);
          });
        });
      },
      args.settings);
}

void advance_shared(const AdvanceArgs& args) {
  const StepState& state = state_of(args.step);
  if (state.taken == 0) return;
  visit_rule(
      [&]<class Settings>(const Settings& settings) {
        if constexpr (kHasShared<Settings>) {
          double& shared = *args.shared.data<double>();
          shared = Settings::template Rule<double>::advance(settings, state, shared);
        }
      },
      args.settings);
}

template <class A>
double squares(const A* x, std::int64_t count) {
  return row_sum<double>(count, [&](auto at) { return at(x) * at(x); });
}

// Narrow floats are widened a block at a time, so that it stays in the first cache.
template <class T>
double squares_of_chunk(const T* x, std::int64_t count) {
  if constexpr (std::is_same_v<T, Accumulator<T>>) {
    return squares(x, count);
  } else {
    constexpr std::int64_t kBlock = 1024;
    float wide[kBlock];
    double sum = 0;
    for (std::int64_t i = 0; i < count; i += kBlock) {
      const std::int64_t block = std::min(kBlock, count - i);
      sum += squares(widen_row(x + i, block, wide), block);
    }
    return sum;
  }
}

template <class T>
std::int64_t first_not_finite(const T* x, std::int64_t count) {
  std::int64_t i = 0;
  while (i < count && std::isfinite(widen(x[i]))) ++i;
  return i;
}

void add_squares(const Tensor& x, const Tensor& step, std::int64_t first) {
  const std::int64_t count = x.numel(), chunks = (count + kElementGrain - 1) / kElementGrain;
  const Workspace<double> partials(x.context(), chunks);
  StepState& state = state_of(step);
  visit_floating(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const data = x.data<T>();
    parallel_for(x.context(), count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      partials.data()[begin / kElementGrain] = squares_of_chunk(data + begin, end - begin);
    });
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      if (std::isfinite(partials.data()[chunk])) continue;  // squares of f64 may overflow where no element is bad
      const std::int64_t begin = chunk * kElementGrain, end = std::min(count, begin + kElementGrain);
      const std::int64_t at = begin + first_not_finite(data + begin, end - begin);
      if (at < end) state.partial.bad = std::min(state.partial.bad, first + at);
    }
  });
  state.partial.squares += row_sum(partials.data(), chunks);
}

void clip_values(const Tensor& x, const Tensor& step, double limit) {
  visit_floating(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = Accumulator<T>;
    const auto largest = largest_element<A>(state_of(step), limit);
    T* const data = x.data<T>();
    parallel_for(x.context(), x.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        if (const A element = widen(data[i]); is_clipped(element, largest))
          data[i] = static_cast<T>(element > 0 ? largest : -largest);
    });
  });
}

void add_noted(const Tensor& noted, const Tensor& step, std::int64_t first) {
  StepPartial& partial = state_of(step).partial;
  const StepPartial& other = state_of(noted).partial;
  partial.squares += other.squares;
  if (other.bad != StepPartial::kNothingBad) partial.bad = std::min(partial.bad, first + other.bad);
}

void add_tokens(const Tensor& step, double tokens) { state_of(step).partial.tokens += tokens; }

void decide_step(const StepArgs& args) {
  const StepRule rule(args);
  rule(state_of(args.state));
}

}  // namespace

void add_update(KernelTable& table) {
  table.update = update;
  table.advance_shared = advance_shared;
  table.add_squares = add_squares;
  table.clip_values = clip_values;
  table.add_noted = add_noted;
  table.add_tokens = add_tokens;
  table.decide_step = decide_step;
}

}  // namespace keel::cpu
