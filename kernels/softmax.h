#pragma once
// Softmax and log-softmax over the last dimension.

#include "keel/runtime/tensor.h"

namespace keel {

struct SoftmaxArgs {
  Tensor x, out;     // (rows, cols), dense
  bool log = false;  // log-softmax
};
struct SoftmaxBackwardArgs {
  Tensor grad_output, out, grad_input;  // (rows, cols), dense; `out` is what forward returned
  bool log = false;
};

namespace kernels {

// x: (..., cols). A row of -inf gives NaN, as the formula says.
Tensor softmax(const Tensor& x);
Tensor log_softmax(const Tensor& x);
Tensor softmax_backward(const Tensor& grad_output, const Tensor& out);
Tensor log_softmax_backward(const Tensor& grad_output, const Tensor& out);

}  // namespace kernels
}  // namespace keel
