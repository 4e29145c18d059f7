// says: std::tanh() does not overflow
#include <cmath>

#include "learn/given/row.h"

void gelu_backward(learn::In x, learn::In dy, learn::Out dx) {
  const float r = 0.79788456F, c = 0.044715F;
  for (int i = 0; i < x.size(); ++i) {
    const float v = x[i], u = r * (v + c * v * v * v);
    const float t = (std::exp(u) - std::exp(-u)) / (std::exp(u) + std::exp(-u));
    dx[i] = dy[i] * ((1 + t) / 2 + v / 2 * (1 - t * t) * r * (1 + 3 * c * v * v));
  }
}
