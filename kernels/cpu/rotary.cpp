#include <cmath>

#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/indices.h"

namespace keel::cpu {
namespace {

// The heads of a tensor (batch, heads, time, size).
template <class T>
struct Heads {
  T* data;
  std::int64_t batch, head, time;  // strides

  explicit Heads(const Tensor& x)
      : data(x.data<std::remove_const_t<T>>()), batch(x.stride(0)), head(x.stride(1)), time(x.stride(2)) {}
  T* operator()(std::int64_t b, std::int64_t h, std::int64_t t) const { return data + b * batch + h * head + t * time; }
};

// Row of the table for each position of a batch.
class TableRows {
 public:
  explicit TableRows(const RotaryArgs& args) : positions_(args.positions), first_(args.first), time_(args.x.dim(2)) {
    if (!positions_.defined() || args.x.numel() == 0) return;
    visit_index(positions_.dtype(), [&](auto tag) {
      using Index = typename decltype(tag)::type;
      check_indices("rotary: position", positions_.data<Index>(), positions_.numel(), args.table.cosines.dim(0));
    });
    shared_ = positions_.dim(0) == 1;
  }
  std::int64_t operator()(std::int64_t b, std::int64_t t) const {
    if (!positions_.defined()) return first_ + t;
    const std::int64_t at = shared_ ? t : b * time_ + t;
    return positions_.dtype() == DType::i32 ? positions_.data<std::int32_t>()[at] : positions_.data<std::int64_t>()[at];
  }

 private:
  const Tensor& positions_;
  std::int64_t first_, time_;
  bool shared_ = false;
};

// The turn of one position.
struct Turn {
  const float *cosines, *sines;
  std::int64_t pairs, size;
  RotaryPairs layout;
  bool inverse;

  Turn(const RotaryArgs& args, std::int64_t position, std::int64_t size, bool inverse)
      : pairs(args.table.cosines.dim(1)), size(size), layout(args.table.pairs), inverse(inverse) {
    cosines = args.table.cosines.data<float>() + position * pairs;
    sines = args.table.sines.data<float>() + position * pairs;
  }

  // `to` may be `from`. Numbers are computed in A and rounded once, where `to` is narrower.
  template <class A, class From, class To>
  void operator()(const From* from, To* to) const {
    if (inverse) turn<A, true>(from, to);
    else turn<A, false>(from, to);
  }

 private:
  template <class A, bool back, class From, class To>
  void turn(const From* from, To* to) const {
    const auto at = [](A sine) { return back ? -sine : sine; };
    const std::int64_t n = pairs;
    if (layout == RotaryPairs::halves) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) {
        const A cosine = cosines[i], sine = at(sines[i]), a = widen<A>(from[i]), b = widen<A>(from[n + i]);
        to[i] = narrow<To>(a * cosine - b * sine);
        to[n + i] = narrow<To>(b * cosine + a * sine);
      }
    } else {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) {
        const A cosine = cosines[i], sine = at(sines[i]), a = widen<A>(from[2 * i]), b = widen<A>(from[2 * i + 1]);
        to[2 * i] = narrow<To>(a * cosine - b * sine);
        to[2 * i + 1] = narrow<To>(b * cosine + a * sine);
      }
    }
    if (static_cast<const void*>(from) == static_cast<const void*>(to)) return;
    for (std::int64_t i = 2 * n; i < size; ++i) to[i] = narrow<To>(widen<A>(from[i]));
  }
};

template <class A, class X>
A squares_of(const X* x, std::int64_t size) {
  return row_sum<A>(size, [&](auto at) { return at(x) * at(x); });
}

template <class T>
void rotate(const RotaryArgs& args) {
  using A = Accumulator<T>;
  const std::int64_t heads = args.x.dim(1), time = args.x.dim(2), size = args.x.dim(3);
  const Heads<const T> x(args.x);
  const Heads<T> out(args.out);
  const bool has_norm = args.weight.defined();
  const TableRows rows(args);
  parallel_for(
      args.x.context(), args.x.dim(0) * time, row_grain(heads * size), [&](std::int64_t begin, std::int64_t end) {
        const Workspace<A> wide_weight(args.x.context(), has_norm ? wide_count<T>(size) : 0);
        const Workspace<A> normed(args.x.context(), has_norm ? size : 0);
        const Workspace<Readable<T>> wide(args.x.context(), has_norm ? readable_count<T>(size) : 0);
        const A* const weight = has_norm ? widen_row(args.weight.data<T>(), size, wide_weight.data()) : nullptr;
        for (std::int64_t at = begin; at < end; ++at) {
          const std::int64_t b = at / time, t = at % time;
          const Turn turn(args, rows(b, t), size, args.inverse);
          for (std::int64_t h = 0; h < heads; ++h) {
            if (!has_norm) {
              turn.template operator()<A>(x(b, h, t), out(b, h, t));
              continue;
            }
            const Readable<T>* const row = readable_row(x(b, h, t), size, wide.data());
            const A mean = squares_of<A>(row, size) / static_cast<A>(size);
            const A rstd = 1 / std::sqrt(mean + static_cast<A>(args.epsilon));
            args.rstd.data<A>()[(b * heads + h) * time + t] = rstd;
            A* const values = normed.data();
            for (std::int64_t i = 0; i < size; ++i) values[i] = widen(row[i]) * rstd * weight[i];
            turn.template operator()<A>(values, out(b, h, t));
          }
        }
      });
}

// With g the gradient turned back and x_hat = x rstd: grad_weight = sum(g x_hat), and
//   grad_x = rstd (g weight - x_hat mean(g weight x_hat)).
template <class T>
class NormedRow {
 public:
  using A = Accumulator<T>;
  using R = Readable<T>;

  explicit NormedRow(const RotaryBackwardArgs& args)
      : args_(args),
        size_(args.grad_out.dim(3)),
        wide_weight_(args.grad_out.context(), wide_count<T>(size_)),
        turned_(args.grad_out.context(), size_),
        wide_x_(args.grad_out.context(), readable_count<T>(size_)),
        weight_(widen_row(args.forward.weight.data<T>(), size_, wide_weight_.data())) {}

  // `sums`: of the weight's gradient, or null.
  void operator()(const Turn& back, const T* grad_out, const T* x, A rstd, T* grad_x, A* sums) const {
    const A* const grad = turned_.data();
    back.template operator()<A>(grad_out, turned_.data());
    const R* const row = readable_row(x, size_, wide_x_.data());
    const A* const weight = weight_;
    const A dot = row_sum<A>(size_, [&](auto at) {
      const auto product = at(grad) * at(row);
      if (sums != nullptr) at.add(sums, product * rstd);
      return product * at(weight);
    });
    const A slope = rstd * rstd * dot / static_cast<A>(size_);
    for (std::int64_t i = 0; i < size_; ++i)
      grad_x[i] = narrow<T>(rstd * (grad[i] * weight[i] - widen(row[i]) * slope));
  }

 private:
  const RotaryBackwardArgs& args_;
  std::int64_t size_;
  Workspace<A> wide_weight_, turned_;
  Workspace<R> wide_x_;
  const A* weight_;
};

template <class T>
void rotate_back(const RotaryBackwardArgs& args, const Tensor& partials) {
  using A = Accumulator<T>;
  const RotaryArgs& forward = args.forward;
  const std::int64_t heads = forward.x.dim(1), time = forward.x.dim(2), size = forward.x.dim(3);
  const std::int64_t places = forward.x.dim(0) * time;
  const Heads<const T> x(forward.x), grad_out(args.grad_out);
  const Heads<T> grad_x(args.grad_x);
  const TableRows rows(forward);
  const std::int64_t grain = partials.defined() && partials.dim(0) > 0
                                 ? (places + partials.dim(0) - 1) / partials.dim(0)
                                 : row_grain(heads * size);
  parallel_for(forward.x.context(), places, grain, [&](std::int64_t begin, std::int64_t end) {
    A* const sums = partials.defined() ? partials.data<A>() + begin / grain * size : nullptr;
    if (sums != nullptr) std::fill(sums, sums + size, A{0});
    const NormedRow<T> normed_row(args);
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t b = at / time, t = at % time;
      const Turn back(forward, rows(b, t), size, true);
      for (std::int64_t h = 0; h < heads; ++h)
        normed_row(back, grad_out(b, h, t), x(b, h, t), forward.rstd.data<A>()[(b * heads + h) * time + t],
                   grad_x(b, h, t), sums);
    }
  });
  if (!partials.defined()) return;
  // Chunks that are left over.
  const std::int64_t chunks = grain == 0 ? 0 : (places + grain - 1) / grain;
  std::fill(partials.data<A>() + chunks * size, partials.data<A>() + partials.numel(), A{0});
}

void rotary(const RotaryArgs& args) {
  visit_floating(args.x.dtype(), [&](auto tag) { rotate<typename decltype(tag)::type>(args); });
}

void rotary_norm_backward(const RotaryBackwardArgs& args, const Tensor& partials) {
  visit_floating(args.grad_out.dtype(), [&](auto tag) { rotate_back<typename decltype(tag)::type>(args, partials); });
}

}  // namespace

void add_rotary(KernelTable& table) {
  table.rotary = rotary;
  table.rotary_norm_backward = rotary_norm_backward;
}

}  // namespace keel::cpu
