#include <algorithm>
#include <cmath>

#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/rows.h"
#include "keel/kernels/step_rule.h"

namespace keel::cpu {
namespace {

StepState& state_of(const Tensor& step) { return *reinterpret_cast<StepState*>(step.data<std::uint8_t>()); }

// A chunk of flat ranges. P and G are the dtypes of parameter and gradient; `weights` is the master
// copy, or the parameter itself when it is its own.
template <class P, class G>
struct Range {
  using A = Accumulator<P>;
  std::int64_t count;
  P* parameter;
  A* weights;
  const G* gradient;

  Range(const Tensor& parameter_tensor, const Tensor& master, const Tensor& gradient_tensor, std::int64_t begin,
        std::int64_t end)
      : count(end - begin), parameter(parameter_tensor.data<P>() + begin), gradient(gradient_tensor.data<G>() + begin) {
    if constexpr (std::is_same_v<P, A>) weights = parameter;
    else weights = master.data<A>() + begin;
  }
};

template <class P, class G>
void adamw_range(const AdamWArgs& args, const Range<P, G>& range, Accumulator<P>* __restrict m,
                 Accumulator<P>* __restrict v) {
  using A = Accumulator<P>;
  const StepState& state = state_of(args.step);
  const auto step = static_cast<double>(state.steps);
  const double lr = state.lr * args.lr_factor;
  const double bias1 = 1 - std::pow(args.beta1, step), bias2 = 1 - std::pow(args.beta2, step);
  const A scale = static_cast<A>(state.gradient_scale), epsilon = static_cast<A>(args.epsilon);
  const A keep1 = static_cast<A>(args.beta1), take1 = static_cast<A>(1 - args.beta1);
  const A keep2 = static_cast<A>(args.beta2), take2 = static_cast<A>(1 - args.beta2);
  const A decay = static_cast<A>(1 - lr * args.weight_decay), rate = static_cast<A>(lr / bias1);
  const A inverse_root = static_cast<A>(1 / std::sqrt(bias2));
  A* const __restrict weights = range.weights;
  const G* const __restrict gradient = range.gradient;
  for (std::int64_t i = 0; i < range.count; ++i) {
    const A g = static_cast<A>(widen(gradient[i])) * scale;
    m[i] = keep1 * m[i] + take1 * g;
    v[i] = keep2 * v[i] + take2 * g * g;
    weights[i] = weights[i] * decay - rate * (m[i] / (std::sqrt(v[i]) * inverse_root + epsilon));
  }
  store_row(weights, range.count, range.parameter);
}

template <class P, class G>
void sgd_range(const SgdArgs& args, const Range<P, G>& range, Accumulator<P>* __restrict buffer) {
  using A = Accumulator<P>;
  const StepState& state = state_of(args.step);
  const A scale = static_cast<A>(state.gradient_scale), rate = static_cast<A>(state.lr * args.lr_factor);
  const A decay = static_cast<A>(args.weight_decay), keep = static_cast<A>(args.momentum);
  // The buffer begins as the first gradient itself; what it held before is not read.
  const bool first = state.steps == 1;
  const A take = first ? A{1} : static_cast<A>(1 - args.dampening);
  A* const __restrict weights = range.weights;
  const G* const __restrict gradient = range.gradient;
  const auto gradient_at = [&](std::int64_t i) {
    return static_cast<A>(widen(gradient[i])) * scale + decay * weights[i];
  };
  if (buffer == nullptr) {
    for (std::int64_t i = 0; i < range.count; ++i) weights[i] -= rate * gradient_at(i);
  } else {
    if (first) std::fill(buffer, buffer + range.count, A{0});
    const A ahead = args.nesterov ? A{1} : A{0}, behind = args.nesterov ? keep : A{1};
    for (std::int64_t i = 0; i < range.count; ++i) {
      const A g = gradient_at(i);
      buffer[i] = keep * buffer[i] + take * g;
      weights[i] -= rate * (ahead * g + behind * buffer[i]);
    }
  }
  store_row(weights, range.count, range.parameter);
}

// Cuts the flat tensors of an update into chunks and calls body(range, begin) with their types.
template <class Args, class Body>
void for_each_range(const Args& args, const Body& body) {
  if (state_of(args.step).taken == 0) return;
  visit_floating(args.parameter.dtype(), [&](auto tag) {
    using P = typename decltype(tag)::type;
    const auto run = [&]<class G>(TypeTag<G>) {
      parallel_for(args.parameter.context(), args.parameter.numel(), kElementGrain,
                   [&](std::int64_t begin, std::int64_t end) {
                     body(Range<P, G>(args.parameter, args.master, args.gradient, begin, end), begin);
                   });
    };
    if (args.gradient.dtype() == args.parameter.dtype()) run(TypeTag<P>{});
    else run(TypeTag<float>{});
  });
}

void adamw(const AdamWArgs& args) {
  for_each_range(args, [&]<class P, class G>(const Range<P, G>& range, std::int64_t begin) {
    using A = Accumulator<P>;
    adamw_range(args, range, args.m.data<A>() + begin, args.v.data<A>() + begin);
  });
}

void sgd(const SgdArgs& args) {
  for_each_range(args, [&]<class P, class G>(const Range<P, G>& range, std::int64_t begin) {
    using A = Accumulator<P>;
    sgd_range(args, range, args.momentum_buffer.defined() ? args.momentum_buffer.data<A>() + begin : nullptr);
  });
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
      if (at < end) state.bad = std::min(state.bad, first + at);
    }
  });
  state.squares += row_sum(partials.data(), chunks);
}

void decide_step(const StepArgs& args) {
  const bool table = args.rates.defined();
  StepRule{args.tokens, args.clip, args.lr, table ? args.rates.data<double>() : nullptr,
           table ? args.rates.numel() : 0}(state_of(args.state));
}

}  // namespace

void add_update(KernelTable& table) {
  table.adamw = adamw;
  table.sgd = sgd;
  table.add_squares = add_squares;
  table.decide_step = decide_step;
}

}  // namespace keel::cpu
