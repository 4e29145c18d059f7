#include "keel/kernels/softmax.h"

#include "keel/kernels/checks.h"
#include "keel/kernels/table.h"

namespace keel::kernels {
namespace {

Tensor forward(const char* op, const Tensor& x, bool log) {
  check_floating(op, "x", x);
  const Tensor dense = contiguous(x);
  const Tensor out = empty_like(x);
  run_kernel(x.context(), op, kernel_table(x.context()).softmax,
             SoftmaxArgs{as_rows(op, dense), as_rows(op, out), log});
  return out;
}

Tensor backward(const char* op, const Tensor& grad_output, const Tensor& out, bool log) {
  check_floating(op, "out", out);
  check_tensor(op, "grad_output", grad_output, out.shape(), out.dtype(), out.context());
  const Tensor grad = contiguous(grad_output), saved = contiguous(out);
  const Tensor grad_input = empty_like(out);
  run_kernel(out.context(), op, kernel_table(out.context()).softmax_backward,
             SoftmaxBackwardArgs{as_rows(op, grad), as_rows(op, saved), as_rows(op, grad_input), log});
  return grad_input;
}

}  // namespace

Tensor softmax(const Tensor& x) { return forward("softmax", x, false); }
Tensor log_softmax(const Tensor& x) { return forward("log_softmax", x, true); }
Tensor softmax_backward(const Tensor& grad_output, const Tensor& out) {
  return backward("softmax_backward", grad_output, out, false);
}
Tensor log_softmax_backward(const Tensor& grad_output, const Tensor& out) {
  return backward("log_softmax_backward", grad_output, out, true);
}

}  // namespace keel::kernels
