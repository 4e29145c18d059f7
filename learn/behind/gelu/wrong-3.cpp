// says: both of its factors depend on x
#include <cmath>

#include "learn/given/row.h"

void gelu_backward(learn::In x, learn::In dy, learn::Out dx) {
  for (int i = 0; i < x.size(); ++i) {
    const float v = x[i];
    dx[i] = dy[i] * 0.5F * (1 + std::tanh(0.79788456F * (v + 0.044715F * v * v * v)));
  }
}
