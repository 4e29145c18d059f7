#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/rows.h"
#include "keel/kernels/gate_functors.h"

namespace keel::cpu {
namespace {

// Columns at once: what a step reads and writes stays in the first cache.
constexpr std::int64_t kColumns = 512;

template <class Op, class A>
void gate_block(const A* gate, const A* up, A* out, std::int64_t n) {
  const Op op;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = op.forward(gate[i]) * up[i];
}

template <class Op, class A>
void gate_backward_block(const A* grad, const A* gate, const A* up, A* grad_gate, A* grad_up, std::int64_t n) {
  const Op op;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const auto [of_gate, of_up] = gate_gradients<Op>(op, grad[i], gate[i], up[i]);
    grad_gate[i] = of_gate;
    grad_up[i] = of_up;
  }
}

// The accumulators of one buffer; there are none where T is an accumulator.
template <class A>
A* place_in(A* scratch, std::int64_t buffer) {
  return scratch == nullptr ? nullptr : scratch + buffer * kColumns;
}

// f(row, first column, columns, scratch) for pieces of all rows; `scratch` has `buffers` times kColumns accumulators,
// where T is none.
template <class T, class F>
void for_each_piece(const Context& context, std::int64_t rows, std::int64_t cols, std::int64_t buffers, const F& f) {
  parallel_for(context, rows, row_grain(2 * cols), [&](std::int64_t begin, std::int64_t end) {
    const Workspace<Accumulator<T>> scratch(context, wide_count<T>(buffers * kColumns));
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t at = 0; at < cols; at += kColumns) f(row, at, std::min(kColumns, cols - at), scratch.data());
  });
}

template <class Op, class T>
void gate_rows(const GatedArgs& args) {
  using A = Accumulator<T>;
  const std::int64_t cols = args.out.dim(1);
  const T* const x = args.x.data<T>();
  T* const out = args.out.data<T>();
  for_each_piece<T>(args.x.context(), args.out.dim(0), cols, 3,
                    [=](std::int64_t row, std::int64_t at, std::int64_t n, A* scratch) {
                      const T* const gate = x + row * 2 * cols + at;
                      T* const to = out + row * cols + at;
                      A* const staged = staged_row(to, scratch);
                      gate_block<Op>(widen_row(gate, n, place_in(scratch, 1)),
                                     widen_row(gate + cols, n, place_in(scratch, 2)), staged, n);
                      store_row(staged, n, to);
                    });
}

template <class Op, class T>
void gate_backward_rows(const GatedBackwardArgs& args) {
  using A = Accumulator<T>;
  const std::int64_t cols = args.grad_out.dim(1);
  const T *const x = args.x.data<T>(), *const grad_out = args.grad_out.data<T>();
  T* const grad_x = args.grad_x.data<T>();
  for_each_piece<T>(args.x.context(), args.grad_out.dim(0), cols, 5,
                    [=](std::int64_t row, std::int64_t at, std::int64_t n, A* scratch) {
                      const T* const gate = x + row * 2 * cols + at;
                      T* const to = grad_x + row * 2 * cols + at;
                      A* const of_gate = staged_row(to, scratch);
                      A* const of_up = staged_row(to + cols, place_in(scratch, 1));
                      gate_backward_block<Op>(widen_row(grad_out + row * cols + at, n, place_in(scratch, 2)),
                                              widen_row(gate, n, place_in(scratch, 3)),
                                              widen_row(gate + cols, n, place_in(scratch, 4)), of_gate, of_up, n);
                      store_row(of_gate, n, to);
                      store_row(of_up, n, to + cols);
                    });
}

void gated(const GatedArgs& args) {
  visit_gate(args.kind, [&](auto op) {
    visit_floating(args.x.dtype(),
                   [&](auto tag) { gate_rows<typename decltype(op)::type, typename decltype(tag)::type>(args); });
  });
}

void gated_backward(const GatedBackwardArgs& args) {
  visit_gate(args.kind, [&](auto op) {
    visit_floating(args.x.dtype(), [&](auto tag) {
      gate_backward_rows<typename decltype(op)::type, typename decltype(tag)::type>(args);
    });
  });
}

}  // namespace

void add_gated(KernelTable& table) {
  table.gated = gated;
  table.gated_backward = gated_backward;
}

}  // namespace keel::cpu
