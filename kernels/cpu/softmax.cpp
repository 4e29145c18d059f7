#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/softmax_row.h"

namespace keel::cpu {
namespace {

void softmax(const SoftmaxArgs& args) {
  const std::int64_t rows = args.x.dim(0), cols = args.x.dim(1);
  visit_floating(args.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = Accumulator<T>;
    const T* const x = args.x.data<T>();
    T* const out = args.out.data<T>();
    const Context& context = args.x.context();
    parallel_for(context, rows, row_grain(cols), [&](std::int64_t begin, std::int64_t end) {
      const Workspace<A> scratch(context, cols);
      A* const exps = scratch.data();
      for (std::int64_t r = begin; r < end; ++r) {
        const T* const from = x + r * cols;
        T* const to = out + r * cols;
        const auto [shift, sum] = exponentials<Keep::row>(from, cols, exps);
        if (args.log) {
          const A subtracted = shift, log_sum = math::log(sum);
          for (std::int64_t j = 0; j < cols; ++j) to[j] = static_cast<T>(widen(from[j]) - subtracted - log_sum);
        } else {
          const A scale = A{1} / sum;
          for (std::int64_t j = 0; j < cols; ++j) to[j] = static_cast<T>(exps[j] * scale);
        }
      }
    });
  });
}

// softmax: y (g - sum(g y)); log-softmax: g - exp(y) sum(g).
void softmax_backward(const SoftmaxBackwardArgs& args) {
  const std::int64_t rows = args.out.dim(0), cols = args.out.dim(1);
  visit_floating(args.out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = Accumulator<T>;
    const T* const out = args.out.data<T>();
    const T* const grad_output = args.grad_output.data<T>();
    T* const grad_input = args.grad_input.data<T>();
    const Context& context = args.out.context();
    parallel_for(context, rows, row_grain(cols), [&](std::int64_t begin, std::int64_t end) {
      const Workspace<A> wide_out(context, wide_count<T>(cols)), wide_grad(context, wide_count<T>(cols));
      for (std::int64_t r = begin; r < end; ++r) {
        const A* const y = widen_row(out + r * cols, cols, wide_out.data());
        const A* const g = widen_row(grad_output + r * cols, cols, wide_grad.data());
        A* const to = staged_row(grad_input + r * cols, wide_grad.data());
        if (args.log) {
          const A sum = row_sum(g, cols);
          for (std::int64_t j = 0; j < cols; ++j) to[j] = g[j] - math::exp(y[j]) * sum;
        } else {
          const A dot = row_sum<A>(cols, [&](auto at) { return at(g) * at(y); });
          for (std::int64_t j = 0; j < cols; ++j) to[j] = y[j] * (g[j] - dot);
        }
        store_row(to, cols, grad_input + r * cols);
      }
    });
  });
}

}  // namespace

void add_softmax(KernelTable& table) {
  table.softmax = softmax;
  table.softmax_backward = softmax_backward;
}

}  // namespace keel::cpu
