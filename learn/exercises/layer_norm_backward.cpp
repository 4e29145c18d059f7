// layer_norm_backward: a derivative with two corrections
//
// Layer norm (Ba, Kiros and Hinton 2016) brings each row of x to mean 0 and deviation 1, then scales and
// moves it:
//
//   z[i] = (x[i] - mean) / deviation,   y[i] = z[i] gain[i] + bias[i],   deviation = sqrt(variance + 1e-5)
//
// mean and variance are those of the n numbers of the row: divide by n. The way back gets dy, the derivative
// of the loss with respect to y. It has to find
//
//   dgain[i] and dbias[i]   which all rows share: each row adds its part to what they hold
//   dx                      of each row, overwritten
//
// The idea: a change of x[i] changes z[i], and also the row's mean and deviation, and through them every
// other z of the row. With dz[i] = dy[i] gain[i], dx[i] is dz[i] / deviation and two corrections. One is by
// the mean of dz, the other by the mean of dz z. Derive them; the hints do it by steps.
//
// x, dy and dx are matrices of rows of n numbers, such as x[row][i]. The forward pass has kept mean[row] and
// inverse[row] = 1 / deviation. To read afterwards: layer_norm in learn/gpt.cpp, and kernels/cpu/norm.cpp,
// which is keel's.

#include "learn/given/matrix.h"

void layer_norm_backward(learn::InMatrix x, learn::InMatrix dy, learn::In gain, learn::In mean,
                         learn::In inverse, learn::OutMatrix dx, learn::Out dgain, learn::Out dbias) {
  // Your code. x.rows() and x.columns() are the sizes.
}
