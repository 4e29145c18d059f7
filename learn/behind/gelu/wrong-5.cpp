// says: That is the derivative of the form with erf
#include <cmath>

#include "learn/given/row.h"

void gelu_backward(learn::In x, learn::In dy, learn::Out dx) {
  for (int i = 0; i < x.size(); ++i) {
    const float v = x[i];
    dx[i] = dy[i] * ((1 + std::erf(v * 0.70710678F)) / 2 + v * 0.39894228F * std::exp(-v * v / 2));
  }
}
