#include "keel/kernels/blocked_loss.h"
#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/softmax_row.h"

namespace keel::cpu {
namespace {

// What a row keeps of the classes that have passed by.
template <class A>
struct RowState {
  A shift, sum, at_target, total;
};

template <class A>
A* state_row(const BlockedLoss& loss, std::int64_t row) {
  return loss.state.data<A>() + row * BlockedLoss::kNumbers;
}
template <class A>
RowState<A> load_state(const A* from) {
  return {from[0], from[1], from[2], from[3]};
}
template <class A>
void store_state(const RowState<A>& state, A* to) {
  to[0] = state.shift;
  to[1] = state.sum;
  to[2] = state.at_target;
  to[3] = state.total;
}

// A shift of -inf, where all logits are -inf or NaN, is taken as 0: so exp() gives 0 and NaN, as it should.
template <class A>
A finite_shift(A shift) {
  return shift == -std::numeric_limits<A>::infinity() ? A{0} : shift;
}

// Joins the exponentials of two blocks.
template <class A>
Exponentials<A> joined(const Exponentials<A>& a, const Exponentials<A>& b) {
  const A shift = std::max(a.shift, b.shift), base = finite_shift(shift);
  return {shift, a.sum * math::exp(a.shift - base) + b.sum * math::exp(b.shift - base)};
}

template <class T, class Index>
void fold_rows(const LogitsBlockArgs& args) {
  using A = Accumulator<T>;
  const std::int64_t rows = args.logits.dim(0), block = args.logits.dim(1), first = args.first_class;
  const Index* const targets = args.loss.targets.data<Index>();
  const T* const logits = args.logits.data<T>();
  const bool smooth = args.loss.label_smoothing != 0;
  const Context& context = args.logits.context();
  parallel_for(context, rows, row_grain(block), [&](std::int64_t begin, std::int64_t end) {
    const Workspace<A> scratch(context, smooth ? wide_count<T>(block) + kExpBlock : kExpBlock);
    for (std::int64_t r = begin; r < end; ++r) {
      if (targets[r] == args.loss.ignore_index) continue;
      const T* const row = logits + r * block;
      A* const kept = state_row<A>(args.loss, r);
      RowState<A> state = first == 0 ? RowState<A>{-std::numeric_limits<A>::infinity(), 0, 0, 0} : load_state(kept);
      if (smooth) state.total += row_sum(widen_row(row, block, scratch.data()), block);
      const Exponentials<A> own = exponentials<Keep::sum_alone>(row, block, scratch.data());
      const Exponentials<A> all = first == 0 ? own : joined(Exponentials<A>{state.shift, state.sum}, own);
      state.shift = all.shift;
      state.sum = all.sum;
      const std::int64_t at = static_cast<std::int64_t>(targets[r]) - first;
      if (at >= 0 && at < block) state.at_target = widen(row[at]);
      store_state(state, kept);
    }
  });
}

template <class A, class Index>
void settle_rows(const SettleLossArgs& args) {
  const BlockedLoss& loss = args.loss;
  const std::int64_t rows = loss.state.dim(0);
  const Index* const targets = loss.targets.data<Index>();
  const A smoothing = static_cast<A>(loss.label_smoothing), classes = static_cast<A>(loss.classes);
  A* const losses = args.losses.data<A>();
  std::int64_t count = 0;
  double total = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    losses[row] = 0;
    if (targets[row] == loss.ignore_index) continue;
    KEEL_CHECK(targets[row] >= 0 && targets[row] < loss.classes, "cross_entropy: target ", targets[row], " of row ",
               loss.places.defined() ? loss.places.data<std::int64_t>()[row] : row, " is neither a class in [0, ",
               loss.classes, ") nor the ignore index ", loss.ignore_index);
    const RowState<A> state = load_state(state_row<A>(loss, row));
    const A lse_above_shift = math::log(state.sum);
    A value = lse_above_shift - (state.at_target - state.shift);
    if (smoothing != 0)
      value = (1 - smoothing) * value + smoothing * (lse_above_shift - (state.total / classes - state.shift));
    losses[row] = value;
    total += value;
    ++count;
  }
  *args.count.data<std::int64_t>() = count;
  *args.mean.data<A>() = static_cast<A>(count == 0 ? 0 : total / static_cast<double>(count));
}

template <class T, class Index>
void gradient_rows(const LogitsBlockArgs& args) {
  using A = Accumulator<T>;
  const std::int64_t rows = args.logits.dim(0), block = args.logits.dim(1), first = args.first_class;
  const Index* const targets = args.loss.targets.data<Index>();
  T* const logits = args.logits.data<T>();
  const std::int64_t count = *args.count.data<std::int64_t>();
  const A factor = count == 0 ? A{0} : static_cast<A>(*args.factor.data<A>() / static_cast<double>(count));
  const A smoothing = static_cast<A>(args.loss.label_smoothing);
  const A uniform = smoothing / static_cast<A>(args.loss.classes);
  const Context& context = args.logits.context();
  parallel_for(context, rows, row_grain(block), [&](std::int64_t begin, std::int64_t end) {
    const Workspace<A> exps(context, kExpBlock);
    for (std::int64_t r = begin; r < end; ++r) {
      T* const row = logits + r * block;
      if (count == 0 || targets[r] == args.loss.ignore_index) {
        std::fill(row, row + block, T(0));
        continue;
      }
      const RowState<A> state = load_state(state_row<A>(args.loss, r));
      const A shift = finite_shift(state.shift), inverse = 1 / state.sum;
      const std::int64_t at = static_cast<std::int64_t>(targets[r]) - first;
      const A at_target = at >= 0 && at < block ? widen(row[at]) : A{0};
      for (std::int64_t from = 0; from < block; from += kExpBlock) {
        const std::int64_t n = std::min(kExpBlock, block - from);
        shifted_exponentials(row + from, n, shift, exps.data());
        for (std::int64_t j = 0; j < n; ++j)
          row[from + j] = static_cast<T>((exps.data()[j] * inverse - uniform) * factor);
      }
      if (at >= 0 && at < block)
        row[at] = static_cast<T>((math::exp_flushed(at_target - shift) * inverse - uniform - (1 - smoothing)) * factor);
    }
  });
}

template <class F>
void visit_block(const LogitsBlockArgs& args, const F& f) {
  visit_floating(args.logits.dtype(),
                 [&](auto value) { visit_index(args.loss.targets.dtype(), [&](auto index) { f(value, index); }); });
}

void fold_logits(const LogitsBlockArgs& args) {
  visit_block(args, [&](auto value, auto index) {
    fold_rows<typename decltype(value)::type, typename decltype(index)::type>(args);
  });
}

void logits_gradient(const LogitsBlockArgs& args) {
  visit_block(args, [&](auto value, auto index) {
    gradient_rows<typename decltype(value)::type, typename decltype(index)::type>(args);
  });
}

void settle_loss(const SettleLossArgs& args) {
  visit_index(args.loss.targets.dtype(), [&](auto index) {
    using Index = typename decltype(index)::type;
    if (args.loss.state.dtype() == DType::f64) settle_rows<double, Index>(args);
    else settle_rows<float, Index>(args);
  });
}

}  // namespace

void add_blocked_loss(KernelTable& table) {
  table.fold_logits = fold_logits;
  table.settle_loss = settle_loss;
  table.logits_gradient = logits_gradient;
}

}  // namespace keel::cpu
