#pragma once
// The update of a chunk of weights by a rule, for every way of keeping its state.

#include <algorithm>
#include <cstdint>

#include "keel/kernels/cpu/rows.h"
#include "keel/kernels/step_state.h"
#include "keel/kernels/stochastic_rounding.h"
#include "keel/kernels/update.h"

namespace keel::cpu {

inline StepState& state_of(const Tensor& step) { return *reinterpret_cast<StepState*>(step.data<std::uint8_t>()); }

// `count` elements of flat ranges, from element `begin` on; the gradient's begin elsewhere. P and G are the dtypes of
// parameter and gradient. `weights` is the parameter where that is as wide as its sums, else the master copy, else
// null: then a narrow parameter holds the only weights.
template <class P, class G>
struct Range {
  using A = Accumulator<P>;
  std::int64_t begin, count;
  P* parameter;
  A* weights = nullptr;
  const G* gradient;

  Range(const UpdateArgs& args, std::int64_t begin, std::int64_t count, std::int64_t gradient_begin)
      : begin(begin),
        count(count),
        parameter(args.parameter.data<P>() + begin),
        gradient(args.gradient.data<G>() + gradient_begin) {
    if constexpr (std::is_same_v<P, A>) weights = parameter;
    else if (args.master.defined()) weights = args.master.data<A>() + begin;
  }
};

// How a narrow parameter is stored: nearest, or at random with draws of this key, of elements counted from `first`.
struct Rounding {
  bool stochastic;
  PhiloxKey key;
  std::uint64_t first;
};

template <class P>
void store_weights(const Accumulator<P>* weights, std::int64_t count, P* parameter, const Rounding& rounding) {
  if constexpr (!std::is_same_v<P, Accumulator<P>>) {
    if (!rounding.stochastic) return store_row(weights, count, parameter);
    for (std::int64_t i = 0; i < count;) {
      const std::uint64_t at = rounding.first + static_cast<std::uint64_t>(i);
      const PhiloxWords words = stream_block(rounding.key, at / 4);
      for (std::size_t w = at % 4; w < 4 && i < count; ++w, ++i)
        parameter[i] = round_stochastically<P>(weights[i], words[w]);
    }
  }
}

// Prefetches elements that a block will need soon.
template <class T>
void prefetch(const T* x, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (std::int64_t i = begin; i < end; i += kLine) __builtin_prefetch(x + i);
}

// The rule is a copy, so that no weight that is written can be one of its numbers. While it divides and takes roots,
// the elements of a later block are prefetched: processors do not look so far ahead by themselves.
template <class Rule, class A, class G, class... Kept>
void update_all(const Rule rule, const G* __restrict gradient, std::int64_t count, A* __restrict weights,
                Kept* __restrict... kept) {
  constexpr std::int64_t kBlock = 128, kAhead = 3 * kBlock;
  for (std::int64_t at = 0; at < count; at += kBlock) {
    const std::int64_t end = std::min(at + kBlock, count);
    const std::int64_t later = at + kAhead, later_end = std::min(later + kBlock, count);
    prefetch(gradient, later, later_end);
    prefetch(weights, later, later_end);
    (prefetch(kept, later, later_end), ...);
    for (std::int64_t i = at; i < end; ++i) rule(static_cast<A>(widen(gradient[i])), weights[i], kept[i]...);
  }
}

// `kept`: what the rule keeps for each element of the range.
template <class Rule, class P, class G, class... Kept>
void update_range(const Rule& rule, const Range<P, G>& range, Rounding rounding, Kept*... kept) {
  if constexpr (!std::is_same_v<P, Accumulator<P>>) {
    if (range.weights == nullptr) {
      constexpr std::int64_t kBlock = 1024;
      float weights[kBlock];
      for (std::int64_t at = 0; at < range.count; at += kBlock) {
        const std::int64_t count = std::min(kBlock, range.count - at);
        widen_row(range.parameter + at, count, weights);
        update_all(rule, range.gradient + at, count, weights, (kept + at)...);
        store_weights(weights, count, range.parameter + at, rounding);
        rounding.first += static_cast<std::uint64_t>(count);
      }
      return;
    }
  }
  update_all(rule, range.gradient, range.count, range.weights, kept...);
  store_weights(range.weights, range.count, range.parameter, rounding);
}

}  // namespace keel::cpu
