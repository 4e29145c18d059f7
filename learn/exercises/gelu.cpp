// gelu: the derivative of an activation
//
// GPT-2 passes each number of its hidden layers through GELU (Hendrycks and Gimpel 2016), in the form with
// tanh:
//
//   y[i] = x[i] / 2 (1 + tanh(r (x[i] + c x[i]^3))),   r = sqrt(2 / pi) = 0.79788456,   c = 0.044715
//
// Training goes through it backwards. It knows dy[i], the derivative of the loss with respect to y[i], and
// needs dx[i]:
//
//   dx[i] = dy[i] times the derivative of y[i] with respect to x[i]
//
// (The other form has erf in place of tanh. Its derivative differs by up to 0.0009.)
//
// Write gelu_backward(). x, dy and dx have the same size. dx is overwritten. To read afterwards: GeluTanh in
// kernels/unary_functors.h, which is keel's.

#include <cmath>

#include "learn/given/row.h"

void gelu_backward(learn::In x, learn::In dy, learn::Out dx) {
  // Your code.
}
