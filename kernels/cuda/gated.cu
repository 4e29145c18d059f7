// Gated activations: a thread reads neighbours of both halves of a row, and writes what they give.

#include "keel/kernels/cuda/backend.h"
#include "keel/kernels/cuda/quick_functors.h"
#include "keel/kernels/cuda/rows.h"
#include "keel/kernels/cuda/strides.h"
#include "keel/kernels/gate_functors.h"

namespace keel::cuda {
namespace {

template <class T>
struct Gates {
  const T *x, *grad_out;  // (rows, 2 cols) and (rows, cols); the latter null forward
  T* out;                 // (rows, cols), or the gradient (rows, 2 cols)
  Shape shape;            // (rows, pieces of cols)
  std::int64_t pieces, cols;
};

// The functor, or its second formula for 16-bit numbers.
template <class Op, class T>
auto gate_math() {
  if constexpr (sizeof(T) == 2 && HasQuick<Op>) return Quick<Op>{};
  else return Op{};
}

constexpr int kGateThreads = 256;

// N: elements of a piece, a pack or one.
template <class Op, class Math, class T, int N>
__global__ void __launch_bounds__(kGateThreads) gated_kernel(Gates<T> args) {
  const std::int64_t piece = static_cast<std::int64_t>(blockIdx.x) * kGateThreads + threadIdx.x;
  if (piece >= args.pieces) return;
  std::int64_t row = 0, column = 0;
  args.shape.for_each_coordinate(piece,
                                 [&](int d, std::int64_t at) { (d == 0 ? row : column) = d == 0 ? at : at * N; });
  const T* const x = args.x + row * 2 * args.cols + column;
  float gate[N], up[N];
  load_values(x, gate);
  load_values(x + args.cols, up);
  const Math math{};
  if (args.grad_out == nullptr) {
    for (int i = 0; i < N; ++i) gate[i] = math.forward(gate[i]) * up[i];
    store_values(args.out + row * args.cols + column, gate);
    return;
  }
  float grad[N];
  load_values(args.grad_out + row * args.cols + column, grad);
  for (int i = 0; i < N; ++i) {
    const GateGradients<float> both = gate_gradients<Op>(math, grad[i], gate[i], up[i]);
    gate[i] = both.gate;
    up[i] = both.up;
  }
  T* const to = args.out + row * 2 * args.cols + column;
  store_values(to, gate);
  store_values(to + args.cols, up);
}

// grad_out: undefined forward.
template <class Op, class T>
void launch_gates(const char* name, const Tensor& x, const Tensor& grad_out, const Tensor& out) {
  using Math = decltype(gate_math<Op, T>());
  constexpr int kSize = Pack<T>::kSize;
  const std::int64_t rows = x.dim(0), cols = x.dim(1) / 2;
  if (rows * cols == 0) return;
  Gates<T> gates{};
  gates.x = x.data<T>();
  gates.grad_out = grad_out.defined() ? grad_out.data<T>() : nullptr;
  gates.out = out.data<T>();
  gates.cols = cols;
  const bool packs = packs_fit(gates.x, cols) && packs_fit(gates.grad_out, cols) && packs_fit(gates.out, cols);
  const std::int64_t across = packs ? cols / kSize : cols;
  gates.shape = Shape({rows, across});
  gates.pieces = rows * across;
  launch(name, packs ? gated_kernel<Op, Math, T, kSize> : gated_kernel<Op, Math, T, 1>,
         {grid_of(ceil_div(gates.pieces, kGateThreads)), kGateThreads}, stream_of(x), gates);
}

void launch_gates(const char* name, GateKind kind, const Tensor& x, const Tensor& grad_out, const Tensor& out) {
  visit_kernel_type(name, x.dtype(), x.device(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    visit_gate(kind, [&](auto op) { launch_gates<typename decltype(op)::type, T>(name, x, grad_out, out); });
  });
}

void gated(const GatedArgs& args) { launch_gates("gated", args.kind, args.x, {}, args.out); }
void gated_backward(const GatedBackwardArgs& args) {
  launch_gates("gated_backward", args.kind, args.x, args.grad_out, args.grad_x);
}

}  // namespace

void add_gated(KernelTable& table) {
  table.gated = gated;
  table.gated_backward = gated_backward;
}

}  // namespace keel::cuda
