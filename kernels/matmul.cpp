#include "keel/kernels/matmul.h"

#include "keel/kernels/cpu/backend.h"
#include "keel/kernels/elementwise.h"
#include "keel/kernels/table.h"
#if defined(KEEL_GPU) || defined(KEEL_EMULATED)
#include "keel/kernels/cuda/backend.h"
#endif

namespace keel::kernels {
namespace {

bool fits(const Dims& shape, const Tensor& tensor) { return tensor.defined() && tensor.shape() == shape; }

// Batch dimensions of the result: those of both operands, or of the one that has any.
Dims batch_of(const Tensor& a, const Tensor& b) {
  const auto leading = [](const Tensor& x) {
    return Dims(std::span(x.shape().begin(), static_cast<std::size_t>(x.rank() - 2)));
  };
  const Dims left = leading(a), right = leading(b);
  KEEL_CHECK(left == right || left.empty() || right.empty(), "matmul: batch dimensions ", left, " and ", right,
             " differ in ", a, " times ", b, "; expand() one of them");
  return left.empty() ? right : left;
}

void check_operands(const Tensor& a, const Tensor& b) {
  KEEL_CHECK(a.defined() && b.defined(), "matmul: an operand is an empty tensor handle");
  KEEL_CHECK(a.rank() >= 2 && b.rank() >= 2, "matmul: operands need at least two dimensions, got ", a, " times ", b);
  KEEL_CHECK(is_floating(a.dtype()) && a.dtype() == b.dtype(), "matmul: operands need one floating dtype, got ", a,
             " times ", b, "; cast() one of them");
  KEEL_CHECK(a.context() == b.context(), "matmul: ", a, " and ", b, " belong to different contexts");
  KEEL_CHECK(a.dim(-1) == b.dim(-2), "matmul: inner extents differ in ", a, " times ", b);
}

void check_options(const Tensor& a, const MatmulOptions& options, const Dims& shape) {
  if (options.into.defined()) {
    const Tensor& into = options.into;
    KEEL_CHECK(fits(shape, into), "matmul: the result ", shape, " does not fit into ", into);
    KEEL_CHECK(into.dtype() == a.dtype() || (into.dtype() == DType::f32 && a.dtype() != DType::f64),
               "matmul: a product of ", a.dtype(), " is written as ", a.dtype(),
               size_of(a.dtype()) < size_of(DType::f32) ? " or f32" : "", ", not into ", into);
    KEEL_CHECK(into.dim(-1) <= 1 || into.stride(-1) == 1, "matmul: rows of `into` must be dense, strides are ",
               into.strides());
    KEEL_CHECK(into.context() == a.context(), "matmul: ", a, " and `into` ", into, " belong to different contexts");
  }
  KEEL_CHECK(!options.accumulate || options.into.defined(), "matmul: accumulate needs a tensor to add to (`into`)");
  KEEL_CHECK(!options.accumulate || options.epilogue == Epilogue::none,
             "matmul: a product with bias cannot be added to `into`; add the bias separately");
  const bool biased = options.epilogue != Epilogue::none;
  KEEL_CHECK(biased == options.bias.defined(), "matmul: a bias and an epilogue that uses it go together");
  if (biased) {
    const Tensor& bias = options.bias;
    KEEL_CHECK(bias.rank() == 1 && bias.dim(0) == shape.back() && bias.dtype() == a.dtype(), "matmul: bias must be ",
               a.dtype(), " (", shape.back(), "), got ", bias);
    KEEL_CHECK(bias.context() == a.context(), "matmul: ", a, " and bias ", bias, " belong to different contexts");
  }
  KEEL_CHECK(options.pre_activation == nullptr || options.epilogue == Epilogue::bias_gelu,
             "matmul: pre_activation is offered with the bias_gelu epilogue only");
}

Tensor with_batch(const Tensor& x, const Dims& batch) {
  if (x.rank() == batch.size() + 2) return x;
  Dims shape = batch;
  shape.push_back(x.dim(-2));
  shape.push_back(x.dim(-1));
  return x.expand(shape);
}

}  // namespace

std::string matmul_backend(const Context& context, DType dtype) {
  KEEL_CHECK(is_floating(dtype), "matmul multiplies floating dtypes, not ", dtype);
#if defined(KEEL_GPU) || defined(KEEL_EMULATED)
  if (context.device().type != DeviceType::cpu) return cuda::matmul_backend(context, dtype);
#endif
#ifdef KEEL_HAVE_ONEDNN
  if (context.kernel_choice() == KernelChoice::automatic) return cpu::onednn_backend(dtype);
  return keel::concat(cpu::plain_backend(dtype), ": kernels=plain");
#else
  (void)context;
  return keel::concat(cpu::plain_backend(dtype), ": built without oneDNN");
#endif
}

Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options) {
  check_operands(a, b);
  const Dims batch = batch_of(a, b);
  Dims shape = batch;
  shape.push_back(a.dim(-2));
  shape.push_back(b.dim(-1));
  check_options(a, options, shape);

  MatmulArgs args;
  args.alpha = options.alpha;
  args.accumulate = options.accumulate;
  args.same_bits = options.same_bits;
  args.epilogue = options.epilogue;
  if (options.bias.defined()) args.bias = contiguous(options.bias);
  const Tensor out = options.into.defined() ? options.into : empty(a.context(), shape, a.dtype());
  if (options.pre_activation != nullptr)
    *options.pre_activation = args.pre_activation = empty(a.context(), shape, out.dtype());
  if (out.numel() == 0) return out;

  if (b.rank() == 2 && a.rank() > 2 && a.is_contiguous() && out.is_contiguous()) {
    const Dims rows = {-1, a.dim(-1)}, columns = {-1, out.dim(-1)};
    args.a = a.dim(-1) == 0 ? a.view({out.numel() / out.dim(-1), 0}) : a.view(rows);
    args.b = b;
    args.out = out.view(columns);
    if (args.pre_activation.defined()) args.pre_activation = args.pre_activation.view(columns);
  } else {
    args.a = with_batch(a, batch);
    args.b = with_batch(b, batch);
    args.out = out;
  }
  run_kernel(a.context(), "matmul", kernel_table(a.context()).matmul, args);
  if (options.into.defined()) out.mark_written();
  return out;
}

}  // namespace keel::kernels
