// The elementwise operations of the two functor lists, expanded for the CPU.

#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/cpu/blocks.h"
#include "keel/kernels/elementwise_tables.h"

namespace keel::cpu {
namespace {

// The loops may run in place (out == in), which no vector order can disturb; ivdep says so.

template <class Op, class C>
void unary_forward_block(C* out, const C* const* in, int n, double parameter) {
  const Op op = make_op<Op>(parameter);
  const C* x = in[0];
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) out[i] = op.forward(x[i]);
}

template <class Op, class C>
void unary_backward_block(C* out, const C* const* in, int n, double parameter) {
  const Op op = make_op<Op>(parameter);
  const C* grad = in[0];
  const C* kept = in[1];
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) out[i] = op.backward(grad[i], kept[i]);
}

template <class Op, class C>
void binary_forward_block(C* out, const C* const* in, int n, double) {
  const C* a = in[0];
  const C* b = in[1];
#pragma GCC ivdep
  for (int i = 0; i < n; ++i) out[i] = static_cast<C>(Op{}.forward(a[i], b[i]));
}

template <class Op, int input, class C>
void binary_backward_block(C* out, const C* const* in, int n, double) {
  const C* grad = in[0];
  const C* a = in[1];
  const C* b = in[2];
#pragma GCC ivdep
  for (int i = 0; i < n; ++i)
    out[i] = input == 0 ? Op{}.backward_a(grad[i], a[i], b[i]) : Op{}.backward_b(grad[i], a[i], b[i]);
}

// Calls f(TypeTag<C>{}) with the compute type, which integers have only where the operation allows them.
template <class Op, class F>
void visit_operand_type(DType dtype, F&& f) {
  if constexpr (is_integral_op<Op>) {
    visit_compute_type(dtype, static_cast<F&&>(f));
  } else {
    KEEL_CHECK(is_floating(dtype), Op::name, " needs a floating-point dtype, got ", dtype);
    if (dtype == DType::f64) f(TypeTag<double>{});
    else f(TypeTag<float>{});
  }
}

template <class Op, class C>
void binary_backward_as(int input, const Tensor& grad_output, const Tensor& a, const Tensor& b,
                        const Tensor& grad_input) {
  const auto block = input == 0 ? binary_backward_block<Op, 0, C> : binary_backward_block<Op, 1, C>;
  run_blocks<C, 3>(grad_input, {grad_output, a, b}, block, 0);
}

struct Loops {
  template <class Op>
  static void unary_forward(const Tensor& x, const Tensor& y, double parameter) {
    visit_operand_type<Op>(x.dtype(), [&](auto tag) {
      using C = typename decltype(tag)::type;
      run_blocks<C, 1>(y, {x}, unary_forward_block<Op, C>, parameter);
    });
  }

  template <class Op>
  static void unary_backward(const Tensor& grad_output, const Tensor& kept, const Tensor& grad_input,
                             double parameter) {
    const Tensor& used = Op::keep == Keep::none ? grad_output : kept;
    if (grad_output.dtype() == DType::f64)
      run_blocks<double, 2>(grad_input, {grad_output, used}, unary_backward_block<Op, double>, parameter);
    else run_blocks<float, 2>(grad_input, {grad_output, used}, unary_backward_block<Op, float>, parameter);
  }

  template <class Op>
  static void binary_forward(const Tensor& a, const Tensor& b, const Tensor& out) {
    visit_operand_type<Op>(a.dtype(), [&](auto tag) {
      using C = typename decltype(tag)::type;
      run_blocks<C, 2>(out, {a, b}, binary_forward_block<Op, C>, 0);
    });
  }

  template <class Op>
  static void binary_backward(int input, const Tensor& grad_output, const Tensor& a, const Tensor& b,
                              const Tensor& grad_input) {
    if (a.dtype() == DType::f64) binary_backward_as<Op, double>(input, grad_output, a, b, grad_input);
    else binary_backward_as<Op, float>(input, grad_output, a, b, grad_input);
  }
};

}  // namespace

void add_elementwise(KernelTable& table) {
  table.unary = unary_table<Loops>(UnaryOps{});
  table.binary = binary_table<Loops>(BinaryOps{});
}

}  // namespace keel::cpu
