// The elementwise operations of the two functor lists, expanded for CUDA.

#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/operand.h"
#include "keel/kernels/cuda/quick_functors.h"
#include "keel/kernels/elementwise_tables.h"

namespace keel::cuda {
namespace {

template <class Op>
struct UnaryForward {
  double parameter;
  template <class C>
  __device__ C operator()(C x) const {
    return make_op<Op>(parameter).forward(x);
  }
};

template <class Op>
struct UnaryBackward {
  double parameter;
  template <class C>
  __device__ C operator()(C grad, C kept) const {
    return make_op<Op>(parameter).backward(grad, kept);
  }
};

template <class Op>
struct BinaryForward {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return static_cast<C>(Op{}.forward(a, b));
  }
};

template <class Op>
struct BinaryBackward {
  int input;
  template <class C>
  __device__ C operator()(C grad, C a, C b) const {
    return input == 0 ? Op{}.backward_a(grad, a, b) : Op{}.backward_b(grad, a, b);
  }
};

// Calls f(TypeTag<C>{}) with the compute type, which integers have only where the operation allows them.
template <class Op, class F>
void visit_operand_type(DType dtype, Device device, F&& f) {
  if (dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16) return f(TypeTag<float>{});
  if constexpr (is_integral_op<Op>)
    if (!is_floating(dtype)) return f(TypeTag<std::int64_t>{});
  refuse_dtype(Op::name, dtype, device);
}

bool has_16_bits(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

struct Loops {
  template <class Op>
  static void unary_forward(const Tensor& x, const Tensor& y, double parameter) {
    if constexpr (HasQuick<Op>)
      if (has_16_bits(x.dtype()))
        return run_elementwise<float>(Op::name.data(), y, UnaryForward<Quick<Op>>{parameter}, x);
    visit_operand_type<Op>(x.dtype(), x.device(), [&](auto tag) {
      run_elementwise<typename decltype(tag)::type>(Op::name.data(), y, UnaryForward<Op>{parameter}, x);
    });
  }

  template <class Op>
  static void unary_backward(const Tensor& grad_output, const Tensor& kept, const Tensor& grad_input,
                             double parameter) {
    const Tensor& second = Op::keep == Keep::none ? grad_output : kept;
    if constexpr (HasQuick<Op>)
      if (has_16_bits(grad_output.dtype()))
        return run_elementwise<float>(Op::name.data(), grad_input, UnaryBackward<Quick<Op>>{parameter}, grad_output,
                                      second);
    visit_kernel_type(Op::name, grad_output.dtype(), grad_output.device(), [&](auto) {
      run_elementwise<float>(Op::name.data(), grad_input, UnaryBackward<Op>{parameter}, grad_output, second);
    });
  }

  template <class Op>
  static void binary_forward(const Tensor& a, const Tensor& b, const Tensor& out) {
    visit_operand_type<Op>(a.dtype(), a.device(), [&](auto tag) {
      run_elementwise<typename decltype(tag)::type>(Op::name.data(), out, BinaryForward<Op>{}, a, b);
    });
  }

  template <class Op>
  static void binary_backward(int input, const Tensor& grad_output, const Tensor& a, const Tensor& b,
                              const Tensor& grad_input) {
    visit_kernel_type(Op::name, a.dtype(), a.device(), [&](auto) {
      run_elementwise<float>(Op::name.data(), grad_input, BinaryBackward<Op>{input}, grad_output, a, b);
    });
  }
};

}  // namespace

void add_elementwise(KernelTable& table) {
  table.unary = unary_table<Loops>(UnaryOps{});
  table.binary = binary_table<Loops>(BinaryOps{});
}

}  // namespace keel::cuda
